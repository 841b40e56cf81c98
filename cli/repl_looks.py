"""Looking at a chat without changing it: its numbers, its tokens, the prompt as the model is given it."""

from __future__ import annotations

from ..engine.messages import Message, user
from ..engine.stats import total
from .cache_lines import cache_lines
from .prompt_lines import id_lines, sent_as, stretches
from .repl_help import help_lines
from .repl_state import Command, ReplState, counted
from .stats_line import details, print_stats
from .terminal_size import size_of

_IDS = "--ids"


class ReplLooks:
    """The commands that only show something."""

    def __init__(self, state: ReplState) -> None:
        self._state = state

    @property
    def commands(self) -> dict[str, Command]:
        """By name."""
        return {
            "/help": self._help,
            "/stats": self._stats,
            "/cache": self._cache,
            "/tokens": self._tokens,
            "/prompt": self._prompt,
        }

    def _help(self, _: str) -> None:
        for line in help_lines(size_of(self._state.streams.stderr).columns):
            self._state.note(line)

    def _stats(self, _: str) -> None:
        requests = self._state.requests
        if not requests:
            self._state.note("no answer yet")
            return
        print_stats(requests[-1], self._state.streams)
        for line in details(requests[-1]):
            self._state.note(line)
        if len(requests) > 1:
            sums = total(requests)
            self._state.note(
                f"chat     {len(requests)} answers, prompts of {sums['prompt_tokens']:,} tokens, "
                f"{sums['cached_tokens']:,} of them reused"
            )

    def _cache(self, _: str) -> None:
        for line in cache_lines(self._state.chat.cache_report()):
            self._state.note(line)

    def _tokens(self, text: str) -> None:
        """Those of `text`, or of the conversation: the words of each speaker, and all that the template makes of it."""
        chat = self._state.chat
        if text:
            self._state.note(counted(chat.count_tokens([text])[0], "token"))
            return
        outlook = self._state.outlook()
        share = round(100 * outlook.tokens / outlook.limit)
        self._state.note(f"prompt   {outlook.tokens:,} of {outlook.limit:,} tokens ({share} %) with the next message")
        counts = chat.count_tokens([message.text for message in chat.messages])
        for role, name in (("system", "system"), ("user", "you"), ("tool", "tools"), ("assistant", "model")):
            found = [count for count, one in zip(counts, chat.messages, strict=True) if one.role == role]
            if found:
                self._state.note(f"{name:<8} {sum(found):,} in {counted(len(found), 'message')}")

    def _prompt(self, text: str) -> None:
        """What `text` would be sent as; without any, what the last answer's prompt was."""
        chat = self._state.chat
        first, _, rest = text.partition(" ")
        with_ids, words = first == _IDS, rest.strip() if first == _IDS else text
        messages: list[Message] = [*chat.messages, user(words)]
        if not words:
            asked = [at for at, message in enumerate(chat.messages) if message.role == "assistant"]
            if not asked:
                self._state.note("nothing was sent yet; /prompt TEXT shows what TEXT would be sent as")
                return
            messages = chat.messages[: asked[-1]]
        outlook = chat.outlook(self._state.options, messages)
        if not with_ids:
            self._state.streams.note_as_it_is(outlook.text)
            return
        cached, ahead = outlook.cached, 0
        last = self._state.requests[-1] if self._state.requests and not words else None
        if last is not None and last.prompt_tokens == outlook.tokens:
            cached, ahead = sent_as(last)
        for line in id_lines(outlook.ids, stretches(outlook.tokens, cached, ahead)):  # type: ignore[arg-type]
            self._state.note(line)
