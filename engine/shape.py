"""What a template puts around turns, learned by rendering a conversation of two words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import TemplateError
from .encoding import Scanner
from .layout import common_text
from .marker_sets import Markers
from .protect import sentinel
from .rendering import Plain

Render = Callable[[list[Plain], bool], str]

_ASKED, _SAID, _THOUGHT = sentinel(0), sentinel(1), sentinel(2)
_SPACES = ("", " ", "\n")
_ASK: Plain = {"role": "user", "content": _ASKED}
_SAY: Plain = {"role": "assistant", "content": _SAID}
CALL_ID = "call00000"
CALL: Plain = {"id": CALL_ID, "type": "function", "function": {"name": "f", "arguments": {"x": "x"}}}
CALLING: Plain = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT: Plain = {"role": "tool", "content": "x", "tool_call_id": CALL_ID, "name": "f"}


@dataclass(frozen=True)
class Lead:
    """What the generation prompt adds: the header of the model's turn, and a scaffold that history may not have."""

    header: str = ""
    scaffold: str = ""

    @property
    def text(self) -> str:
        """Both."""
        return self.header + self.scaffold


@dataclass(frozen=True)
class Shape:
    """What surrounds the words of a turn.

    after_user, after_tool  the lead, by what the model answers to
    user_header             what opens a user's turn
    turn_end                the control token that closes the model's turn in history, empty if there is none
    drops_reasoning         whether an answer's reasoning is left out once a user message follows
    openings                the white space that may stand before an answer's first letter, as the template leaves it
    """

    after_user: Lead = Lead()
    after_tool: Lead = Lead()
    user_header: str = ""
    turn_end: str = ""
    drops_reasoning: bool = False
    openings: tuple[str, ...] = _SPACES


def learn(render: Render, markers: Markers, control: Scanner) -> Shape:
    """The shape of a template's turns; parts that the template refuses to show stay empty."""
    try:
        after_user = _lead(render, [_ASK], markers)
        history = render([_ASK, _SAY, _ASK], False)
        reasoned = render([_ASK, {**_SAY, "reasoning_content": _THOUGHT, "reasoning": _THOUGHT}, _ASK], False)
    except TemplateError:
        return Shape()
    try:
        after_tool = _lead(render, [_ASK, CALLING, {**RESULT, "content": _ASKED}], markers)
    except TemplateError:
        after_tool = after_user
    between = history[history.find(_SAID) + 1 : history.rfind(_ASKED)]
    hits = list(control.find(between))
    turn_end = between[slice(*hits[0])] if hits and not between[: hits[0][0]].strip() else ""
    # the first control token closes the model's turn, the next one opens the user's
    opening = hits[1][0] if turn_end and len(hits) > 1 else hits[0][0] if hits and not turn_end else len(between)
    return Shape(after_user, after_tool, between[opening:], turn_end, _THOUGHT not in reasoned, _openings(render))


def split_lead(text: str, history: str, markers: Markers) -> Lead:
    """A generation prompt's addition, split where an answer without reasoning would go on otherwise."""
    cut = common_text(text, history)
    for opening, _ in markers.reasoning:
        at = text.find(opening)
        cut = at if 0 <= at < cut else cut
    return Lead(text[:cut], text[cut:])


def _lead(render: Render, messages: list[Plain], markers: Markers) -> Lead:
    prompt, bare = render(messages, True), render(messages, False)
    start = common_text(prompt, bare)
    try:
        history = render([*messages, _SAY, _ASK], False)
    except TemplateError:
        history = render([*messages, _SAY], False)
    if common_text(prompt, history) < start:
        # a later user message rewrites what is before (a tool loop whose reasoning is dropped)
        history = render([*messages, _SAY], False)
    return split_lead(prompt[start:], history[start:], markers)


def _openings(render: Render) -> tuple[str, ...]:
    """What is left of white space before an answer, followed by a person's message or by a tool's result."""
    found = {""}
    for ending in ([_SAY, _ASK], [{**_SAY, "tool_calls": [CALL]}, RESULT]):
        answer, following = ending
        try:
            texts = [render([_ASK, {**answer, "content": space + _SAID}, following], False) for space in _SPACES]
        except TemplateError:
            continue
        bare, *spaced = (text[: text.find(_SAID)] for text in texts)
        found.update(text[len(bare) :] for text in spaced if text.startswith(bare))
    return tuple(sorted(found))
