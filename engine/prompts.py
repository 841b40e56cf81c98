"""From messages to the ids of a prompt, and the positions in it that matter to later prompts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, TemplateError
from .encoding import Encoder, Scanner
from .image_reader import ImageReader
from .image_spans import ImageSpan
from .layout import Layout, Splice, common_length, common_text
from .marker_sets import markers_for
from .markers import parse
from .marks import Conversation, EdgeMemory, Mark, MarkFinder, MarkKind
from .messages import ImagePart, Message
from .options import ThinkingOptions
from .prompt import Prompt
from .protect import MAX_SENTINELS, MOST_PICTURES, Protector, sentinel
from .recorded import ReplyIds, answer_end, hidden_reasoning
from .rendering import ChatTemplate, Plain, pictures_in, plain_message
from .shape import Lead, Shape, learn, split_lead
from .splice import Splicer, anchors_in, with_sentinel
from .tool_calls import ToolCallReader, parser_for
from .vision_kind import sees_no_pictures

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

__all__ = ["Mark", "MarkKind", "Prompt", "PromptRenderer"]


_BY_TEMPLATE = ThinkingOptions()


class PromptRenderer:
    """Renders requests for one model with one template.

    template        Jinja text; None: the tokenizer's own
    label           what to call the template
    recent_turns    how many earlier user turns get a past_stable mark
    images          lays pictures out; None for a model that sees none
    Raises TemplateError if there is no template.
    """

    def __init__(
        self,
        tokenizer: TokenizerWrapper,
        template: str | None = None,
        label: str = "the model's template",
        *,
        recent_turns: int = 8,
        images: ImageReader | None = None,
    ) -> None:
        self.label = label
        self._template = ChatTemplate(tokenizer, template, label)
        source = self._template.source()
        self.markers = markers_for(tokenizer, source)
        used = [str(token.content) for token in tokenizer.added_tokens_decoder.values()]
        self.encoder = Encoder(tokenizer, [*self.markers.strings, *(text for text in used if text in source)])
        self._content_scanner = Scanner([*self.encoder.control.ids, *self.markers.strings])
        self._parse_call = parser_for(tokenizer, self.markers, source)
        self._recent_turns = recent_turns
        self.images = images
        if images is not None:
            images.learn_marker(self._template)
        self._edges = EdgeMemory()
        self._shapes: dict[tuple[bool | None, bool], Shape] = {}

    @property
    def budget_close_ids(self) -> tuple[int, ...]:
        """What to feed to end the reasoning when its budget is spent; empty if the model has none."""
        return self.encoder.between(None, self.markers.close_text, "")

    @property
    def close_ids(self) -> tuple[int, ...]:
        """The ids of the marker that ends reasoning; empty if the model has none."""
        return self.encoder.between(None, self.markers.close, "")

    @property
    def turn_end_ids(self) -> tuple[int, ...]:
        """The token that closes the model's turn in history: sampling it ends the answer."""
        if self.markers.harmony:
            # there it ends each part of a reply; what ends the reply is among the tokenizer's end tokens
            return ()
        end = self._shape(_BY_TEMPLATE, ()).turn_end
        return (self.encoder.control.ids[end],) if end else ()

    def drops_reasoning(self, thinking: ThinkingOptions = _BY_TEMPLATE) -> bool:
        """Whether the template leaves an answer's reasoning out once a user message follows."""
        return self._shape(thinking, ()).drops_reasoning

    def call_reader(self, tools: Sequence[dict[str, Any]] = ()) -> ToolCallReader:
        """Reads the tool segments of replies to a request with these tools."""
        return ToolCallReader(self.markers, self._parse_call, tools)

    def render(
        self,
        messages: Sequence[Message],
        *,
        thinking: ThinkingOptions = _BY_TEMPLATE,
        tools: Sequence[dict[str, Any]] = (),
        date: str | None = None,
    ) -> Prompt:
        """The prompt for the model's next message. date: ISO, the day that the template may name (None: today).

        Raises TemplateError if the template refuses the conversation.
        """
        request = _Request(self, messages, thinking, tools, date)
        return request.prompt()

    def reply(
        self,
        prompt: Prompt,
        messages: Sequence[Message],
        answer: Message,
        ends: Collection[int],
        *,
        thinking: ThinkingOptions = _BY_TEMPLATE,
        tools: Sequence[dict[str, Any]] = (),
        date: str | None = None,
    ) -> ReplyIds:
        """The ids that rendering through `answer` gives past `prompt`, which is `render(messages, …)`.

        ends: ids that end an answer. Raises TemplateError if the template refuses the answer.
        """
        request = _Request(self, [*messages, answer], thinking, tools, date)
        return request.reply(prompt, ends)

    def _shape(self, thinking: ThinkingOptions, tools: Sequence[Plain]) -> Shape:
        key = (thinking.enabled, bool(tools))
        if key not in self._shapes:
            self._shapes[key] = learn(
                lambda messages, generation: self._template.render(
                    messages, tools, generation=generation, thinking=thinking.enabled
                ),
                self.markers,
                self.encoder.separators,
            )
        return self._shapes[key]


class _Request:
    """One call of `PromptRenderer.render`: its stand-ins, its text, its layout."""

    def __init__(
        self,
        owner: PromptRenderer,
        messages: Sequence[Message],
        thinking: ThinkingOptions,
        tools: Sequence[dict[str, Any]],
        date: str | None,
    ) -> None:
        self._owner = owner
        self._messages = messages
        self._thinking = thinking
        self._date = date
        self._protector = Protector(owner._content_scanner, owner.encoder.hides_control)
        # the tools first, so that stand-ins of the messages stay the same while the conversation grows
        self._tools: list[Plain] = self._protector.protect(list(tools))
        self._plain: list[Plain] = self._protector.protect([plain_message(message) for message in messages])
        self._raw_tools = tools
        self._pictures = [part for message in messages for part in message.content if isinstance(part, ImagePart)]
        if self._pictures:
            self._show_pictures()

    def _show_pictures(self) -> None:
        images = self._owner.images
        if images is None:
            raise sees_no_pictures("this model")
        if len(self._pictures) > MOST_PICTURES:
            raise DataError(f"a conversation can't hold more than {MOST_PICTURES:,} pictures", "start a new one")
        self._protector.show_pictures([images.prepare(part) for part in self._pictures], images.marker)

    def prompt(self) -> Prompt:
        owner, text = self._owner, self._render(self._plain, generation=True)
        shape = owner._shape(self._thinking, self._tools)
        lead = self._lead(text, shape)
        scaffold_start = len(text) - len(lead.scaffold)
        anchors = self._anchors(text)
        splices = self._splices(text, anchors, shape)
        layout = Layout(owner.encoder, self._protector, text, splices, edges=[scaffold_start])
        conversation = Conversation(self._messages, self._plain, self._tools, anchors)
        memory = owner._edges.of(self._thinking.enabled, self._date, self._tools)
        finder = MarkFinder(layout, conversation, shape, owner.markers, owner.encoder.separators, self._render, memory)
        _, state = parse(owner.markers, lead.scaffold)
        ids = np.array(layout.ids(), dtype=np.int32)
        return Prompt(
            ids=ids,
            text=self._protector.restore(text),
            marks=finder.marks(scaffold_start, owner._recent_turns),
            scaffold_text=lead.scaffold,
            scaffold_ids=tuple(int(one) for one in ids[layout.position(scaffold_start) :]),
            reasoning_open=state.in_reasoning,
            pictures=tuple(
                ImageSpan(*place, part.source) for place, part in zip(layout.pictures(), self._pictures, strict=True)
            ),
        )

    def reply(self, prompt: Prompt, ends: Collection[int]) -> ReplyIds:
        """The ids of the last message, past the prompt that it answers."""
        owner, text = self._owner, self._render(self._plain)
        shape, known = owner._shape(self._thinking, self._tools), prompt.ids.tolist()
        if owner.markers.harmony:  # what ends a sampled reply there is not what ends one in history
            ends = {*ends, owner.encoder.control.ids.get("<|end|>", -1)}
        end = answer_end(owner.encoder, text, ends)
        start = self._answer_start(text, shape)
        if start is not None:
            hidden = hidden_reasoning(owner.markers, prompt, self._plain[-1], text[start:end])
            text, end = text[:start] + hidden + text[start:], end + len(hidden)
        splices = [one for one in self._splices(text, self._anchors(text, False), shape) if one.end <= (start or end)]
        layout = Layout(owner.encoder, self._protector, text, splices, edges=[end])
        ids = layout.ids()[: layout.position(end)]
        shared = common_length(ids, known)
        if shared == len(known):
            return ReplyIds(tuple(ids[shared:]))
        if start is None:
            return ReplyIds((), len(known) - shared)
        if text.startswith(prompt.scaffold_text, start):
            start += len(prompt.scaffold_text)
        layout = Layout(owner.encoder, self._protector, text, splices, edges=[start, end])
        return ReplyIds(tuple(layout.ids()[layout.position(start) : layout.position(end)]), len(known) - shared)

    def _answer_start(self, text: str, shape: Shape) -> int | None:
        """Where the last message's turn begins, behind its header; None if the template shows no word of it."""
        marked = self._render([*self._plain[:-1], with_sentinel(self._plain[-1], sentinel(0))])
        anchor = anchors_in(text, marked).get(0)
        if anchor is None:
            return None
        header = (shape.after_tool if self._after_tool(len(self._messages) - 1) else shape.after_user).header
        at = text.rfind(header, 0, anchor) if header else -1
        return at + len(header) if at >= 0 else anchor

    def _after_tool(self, index: int) -> bool:
        return index > 0 and self._messages[index - 1].role == "tool"

    def _splices(self, text: str, anchors: dict[int, int], shape: Shape) -> list[Splice]:
        owner = self._owner
        splicer = Splicer(owner.markers, owner.encoder, self._protector, shape, owner.call_reader(self._raw_tools))
        return splicer.splices(text, self._messages, anchors)

    def _render(self, messages: Sequence[Plain], generation: bool = False) -> str:
        text = self._owner._template.render(
            messages, self._tools, generation=generation, thinking=self._thinking.enabled, date=self._date
        )
        images = self._owner.images
        count = sum(map(pictures_in, messages))
        if images is None or not count:
            return text
        if text.count(images.marker) != count:
            raise TemplateError(
                f"the template shows {text.count(images.marker)} of this conversation's {count} pictures",
                "choose another with --template NAME|FILE",
            )
        return self._protector.with_pictures(text)

    def _lead(self, text: str, shape: Shape) -> Lead:
        known = shape.after_tool if self._after_tool(len(self._messages)) else shape.after_user
        if known.header and text.endswith(known.text):
            return known
        bare = self._render(self._plain)
        added = text[common_text(text, bare) :]
        return split_lead(added, known.header or added, self._owner.markers)

    def _anchors(self, text: str, generation: bool = True) -> dict[int, int]:
        """Where the words of each message begin that is a system's, a user's, or was sampled here."""
        if len(self._plain) > MAX_SENTINELS:
            return {}
        marked = [
            with_sentinel(plain, sentinel(index))
            if message.role in ("system", "user") or message.generated is not None
            else plain
            for index, (message, plain) in enumerate(zip(self._messages, self._plain, strict=True))
        ]
        return anchors_in(text, self._render(marked, generation))
