"""What each request of a transcript must cost: its prompt, what of it was fed before, what an ideal cache would reuse.

Needs a tokenizer and a template only. A recorded answer counts as fed, so that the next prompt can be compared with it.
"""

from __future__ import annotations

import numpy as np

from ..cache.trie import SequenceTrie, common_prefix
from ..engine.messages import Message, assistant
from ..engine.prompts import Prompt
from ..engine.recorded import ReplyIds
from ..engine.sequence import Sequence
from ..errors import TemplateError
from .anchors import Anchors
from .jobs import NO_IMAGE, Job
from .padding import Padding
from .planned import Difference, Planned
from .prompts import Prompts

_HEADER_TOKENS = 8  # about what a template puts around a message


class Planner:
    """Plans jobs in the order in which they run.

    limit      most positions of prompt and answer; recurrent: the model has layers that stand at exact positions only
    live       the answers will be sampled: what is recorded is not fed
    """

    def __init__(
        self, prompts: Prompts, limit: int, *, recurrent: bool, padding: Padding | None = None, live: bool = False
    ) -> None:
        self._prompts = prompts
        self._limit = limit
        self._recurrent = recurrent
        self._padding = padding
        self._live = live
        self._trie = SequenceTrie()
        self._anchors = Anchors()
        self._sequences: dict[str, Sequence] = {}
        self._tools: dict[str, tuple[object, ...]] = {}

    def plan(self, job: Job) -> Planned:
        """The next one. A job that can't run changes nothing for those after it."""
        if not job.messages and not job.hash_ids:
            return Planned(job, "no_request", "there is nothing before the answer")
        try:
            prompt = self._prompts.render(job)
            if self._padding is not None:
                job = self._padding.apply(job, len(prompt.ids))
                prompt = self._prompts.render(job)
            tokens = len(prompt.ids)
            if tokens >= self._limit:
                why = f"{tokens:,} tokens, the context is {self._limit:,}"
                return Planned(job, "skipped_too_long", why, tokens, padded_tokens=self._padded(prompt))
            reply = ReplyIds(()) if self._live else self._prompts.reply(job, prompt)
        except TemplateError as error:
            return Planned(job, "no_request", error.message)
        planned = self._compared(job, prompt, reply)
        self._note(job, prompt, reply)
        return planned

    def _compared(self, job: Job, prompt: Prompt, reply: ReplyIds) -> Planned:
        ids = prompt.elements
        sequence = self._sequences.setdefault(job.conversation, Sequence(len(self._sequences) + 1))
        common = self._trie.longest_match(ids)
        reach = min(common, len(ids) - 1)
        ideal = self._anchors.best(ids, reach) if self._recurrent else reach
        divergence = sequence.divergence(ids, job.messages, prompt.pictures)
        again = 0
        if divergence not in ("first", "append"):
            again = max(0, len(ids) - ideal - self._fresh_tokens(sequence.messages, job.messages))
        return Planned(
            job,
            prompt_tokens=len(ids),
            answer_tokens=len(reply.ids),
            common_prefix_tokens=common,
            ideal_tokens=ideal,
            again_tokens=again,
            mismatched_tokens=reply.mismatched,
            padded_tokens=self._padded(prompt),
            divergence=divergence,
            difference=self._difference(sequence, prompt),
            scaffold_lost=sequence.scaffold[0] <= common_prefix(ids, sequence.fed) < sequence.scaffold[1],
            tools_changed=job.tools != self._tools.get(job.conversation, job.tools),
        )

    def _fresh_tokens(self, before: tuple[Message, ...], now: tuple[Message, ...]) -> int:
        """About how many tokens the messages take that the conversation didn't have before."""
        known = {_words(message) for message in before}
        fresh = [words for words in map(_words, now) if words not in known]
        return sum(len(self._prompts.encode(words[1])) + _HEADER_TOKENS for words in fresh)

    def _difference(self, sequence: Sequence, prompt: Prompt) -> Difference | None:
        fed, ids = sequence.fed, prompt.elements
        at = common_prefix(ids, fed)
        if not len(fed) or at == len(fed):
            return None
        now = self._said(int(ids[at])) if at < len(ids) else None
        return Difference(at, self._said(int(fed[at])), now)

    def _said(self, element: int) -> str:
        return self._prompts.text(element) if element >= 0 else NO_IMAGE

    def _padded(self, prompt: Prompt) -> int:
        return 0 if self._padding is None else self._padding.filler.count(prompt.ids)

    def _note(self, job: Job, prompt: Prompt, reply: ReplyIds) -> None:
        """The request has run: what it fed, and where its conversation stands."""
        room = self._limit - len(prompt.ids)
        fed = np.concatenate([prompt.elements, np.array(reply.ids[:room], np.int32)])
        self._trie.add(fed)
        if self._recurrent:
            self._anchors.add(fed, prompt.positions())
        sequence = self._sequences[job.conversation]
        answer = None if self._live else job.answer or assistant("")
        sequence.fed = fed
        sequence.pictures = prompt.pictures
        sequence.messages = (*job.messages, *([] if answer is None else [answer]))
        sequence.system_end = max(prompt.positions("system_end"), default=0)
        sequence.stable = max(prompt.positions("stable_user"), default=len(prompt.ids))
        sequence.scaffold = (len(prompt.ids) - len(prompt.scaffold_ids), len(prompt.ids))
        reasoned = bool(prompt.scaffold_ids) or (answer is not None and bool(answer.reasoning))
        calls = answer is not None and bool(answer.tool_calls)
        sequence.drops_reply = bool(reply.ids) and reasoned and not calls and self._prompts.drops_reasoning
        self._tools[job.conversation] = job.tools


def _words(message: Message) -> tuple[str, str]:
    """Who said a message, and all of it as one text."""
    calls = "".join(f"{call.name} {call.arguments}" for call in message.tool_calls)
    return message.role, f"{message.reasoning or ''}{message.text}{calls}"
