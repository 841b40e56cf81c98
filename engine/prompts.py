"""From messages to the ids of a prompt, and the positions in it that matter to later prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .encoding import Encoder, Scanner
from .layout import Layout, common_text
from .marker_sets import markers_for
from .markers import parse
from .marks import Conversation, EdgeMemory, Mark, MarkFinder, MarkKind
from .messages import Message
from .options import ThinkingOptions
from .protect import MAX_SENTINELS, Protector, sentinel
from .rendering import ChatTemplate, Plain, plain_message
from .shape import Lead, Shape, learn, split_lead
from .splice import Splicer, anchors_in, with_sentinel
from .tool_calls import ToolCallReader, parser_for

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

__all__ = ["Mark", "MarkKind", "Prompt", "PromptRenderer"]


_BY_TEMPLATE = ThinkingOptions()


@dataclass(frozen=True, eq=False)
class Prompt:
    """A rendered request.

    ids             int32 [tokens]
    text            what the template wrote
    marks           sorted, each with 0 < position <= tokens; a function of the request alone
    scaffold_text   what the generation prompt put behind the header of the model's turn; scaffold_ids its ids
    reasoning_open  whether the model's first token is reasoning
    """

    ids: NDArray[np.int32]
    text: str
    marks: tuple[Mark, ...]
    scaffold_text: str
    scaffold_ids: tuple[int, ...]
    reasoning_open: bool

    def positions(self, *kinds: MarkKind) -> list[int]:
        """The positions of marks of these kinds (all if none is named), ascending, each once."""
        return sorted({mark.position for mark in self.marks if not kinds or mark.kind in kinds})

    def position_of(self, kind: MarkKind) -> int | None:
        """The last position of this kind, None if there is none."""
        return max((mark.position for mark in self.marks if mark.kind == kind), default=None)


class PromptRenderer:
    """Renders requests for one model with one template.

    template        Jinja text; None: the tokenizer's own
    label           what to call the template in an error
    recent_turns    how many earlier user turns get a past_stable mark
    Raises TemplateError if there is no template.
    """

    def __init__(
        self,
        tokenizer: TokenizerWrapper,
        template: str | None = None,
        label: str = "The model's template",
        *,
        recent_turns: int = 8,
    ) -> None:
        self._template = ChatTemplate(tokenizer, template, label)
        source = self._template.source()
        self.markers = markers_for(tokenizer, source)
        used = [str(token.content) for token in tokenizer.added_tokens_decoder.values()]
        self.encoder = Encoder(tokenizer, [*self.markers.strings, *(text for text in used if text in source)])
        self._content_scanner = Scanner([*self.encoder.control.ids, *self.markers.strings])
        self._parse_call = parser_for(tokenizer, self.markers, source)
        self._recent_turns = recent_turns
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

    def prompt(self) -> Prompt:
        owner, text = self._owner, self._render(self._plain, generation=True)
        shape = owner._shape(self._thinking, self._tools)
        lead = self._lead(text, shape)
        scaffold_start = len(text) - len(lead.scaffold)
        anchors = self._anchors(text)
        splicer = Splicer(owner.markers, owner.encoder, self._protector, shape, owner.call_reader(self._raw_tools))
        splices = splicer.splices(text, self._messages, anchors)
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
        )

    def _render(self, messages: Sequence[Plain], generation: bool = False) -> str:
        return self._owner._template.render(
            messages, self._tools, generation=generation, thinking=self._thinking.enabled, date=self._date
        )

    def _lead(self, text: str, shape: Shape) -> Lead:
        after_tool = bool(self._messages) and self._messages[-1].role == "tool"
        known = shape.after_tool if after_tool else shape.after_user
        if known.header and text.endswith(known.text):
            return known
        bare = self._render(self._plain)
        added = text[common_text(text, bare) :]
        return split_lead(added, known.header or added, self._owner.markers)

    def _anchors(self, text: str) -> dict[int, int]:
        """Where the words of each message begin that is a system's, a user's, or was sampled here."""
        if len(self._plain) > MAX_SENTINELS:
            return {}
        marked = [
            with_sentinel(plain, sentinel(index))
            if message.role in ("system", "user") or message.generated is not None
            else plain
            for index, (message, plain) in enumerate(zip(self._messages, self._plain, strict=True))
        ]
        return anchors_in(text, self._render(marked, generation=True))
