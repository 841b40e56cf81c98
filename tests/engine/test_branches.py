"""Steps in the conversation tree cost what is new, on every kind of layer, and `outlook` says so beforehand.

`Rig.ask` compares each request with the uncached engine bit for bit, and its position with the design's rules.
"""

from __future__ import annotations

import pytest
from mlxchat.engine.messages import user
from mlxchat.engine.outlook import Outlook
from mlxchat.engine.reuse import Reuse
from support.rewind_rig import Asked, Rig, Rigs
from support.rewind_talk import SYSTEM, Talk, fresh, within
from support.rewind_words import says

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("same_words")]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("qwen3", "qwen3", False), id="global-live"),
        pytest.param(("gemma3_text", "qwen3", True), id="local-dropped"),
        pytest.param(("qwen3_5", "qwen36", True), id="recurrent-dropped"),
        pytest.param(("qwen3", "qwen3", True), id="global-dropped", marks=pytest.mark.slow),
        pytest.param(("gemma3_text", "qwen3", False), id="local-live", marks=pytest.mark.slow),
        pytest.param(("qwen3_5", "qwen36", False), id="recurrent-live", marks=pytest.mark.slow),
    ],
)
def rig(request: pytest.FixtureRequest, rigs: Rigs) -> Rig:
    return rigs(*request.param)


def foreseen(talk: Talk, text: str) -> tuple[Outlook, Asked]:
    """What the chat says that asking `text` would cost, and what it did cost."""
    message = user(text)
    outlook = talk.chat.outlook(talk.options, [*talk.chat.messages, message])
    return outlook, within(talk.ask(message))


def as_foreseen(outlook: Outlook, asked: Asked) -> bool:
    """Whether the very prompt came that was shown, and cost what was said."""
    assert outlook.text == asked.prompt.text
    assert tuple(outlook.ids.tolist()) == asked.ids
    return outlook.new == asked.stats.prefill_tokens


def test_back_and_forth(rig: Rig) -> None:
    """Undo and another text; back to the first branch by its number; undo twice, redo, on."""
    talk = Talk(rig)
    talk.ask()
    talk.ask()
    first = len(talk.chat.tree)
    assert talk.chat.undo() is not None
    assert as_foreseen(*foreseen(talk, fresh(12)))
    assert talk.chat.go_to(first) is None
    back = within(talk.ask())
    assert back.stats.divergence == "history_edited"
    assert back.stats.cached_tokens > 20
    talk.chat.undo()
    talk.chat.undo()
    assert talk.chat.redo()
    assert as_foreseen(*foreseen(talk, fresh(12)))


def test_edit_of_an_old_message(rig: Rig) -> None:
    talk = Talk(rig)
    for _ in range(3):
        talk.ask()
    message = talk.chat.undo(2)
    assert message is not None
    outlook, asked = foreseen(talk, fresh(12))
    assert as_foreseen(outlook, asked)
    assert outlook.cached > 20
    talk.chat.go_to(len(talk.chat.tree) - 2)
    within(talk.ask())


def test_the_oldest_turns_left_out(rig: Rig) -> None:
    """What comes behind the system prompt is new there, and the outlook says so."""
    talk = Talk(rig)
    for _ in range(3):
        talk.ask()
    before = talk.chat.outlook(talk.options).tokens
    assert talk.chat.drop_oldest(2)
    outlook, asked = foreseen(talk, fresh(12))
    assert as_foreseen(outlook, asked)
    assert outlook.tokens < before
    assert 20 < outlook.cached < outlook.tokens
    within(talk.ask())


def test_another_system_prompt_and_the_way_back(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    talk.chat.set_system(SYSTEM + " " + fresh(6))
    outlook = talk.chat.outlook(talk.options, [*talk.chat.messages, user(fresh(12))])
    assert outlook.new > 30
    talk.ask()
    assert talk.chat.go_to(3) is None
    assert talk.chat.system == SYSTEM
    within(talk.ask())


def test_a_look_changes_nothing(rig: Rig) -> None:
    talk = Talk(rig)
    talk.ask()
    looks = [talk.chat.outlook(talk.options, [*talk.chat.messages, user("two")]) for _ in range(2)]
    assert looks[0].ids.tolist() == looks[1].ids.tolist()
    assert looks[0].cached == looks[1].cached > 20
    assert looks[0].text.count("two") >= 1
    within(talk.ask(user("two")))
    [count] = talk.chat.count_tokens([says("Obey", 30)])
    assert count > 10


def test_a_look_that_sees_too_much_is_caught(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reach = Reuse.reach
    monkeypatch.setattr(Reuse, "reach", lambda *arguments: reach(*arguments) + 1)
    talk = Talk(rig)
    talk.ask()
    assert not as_foreseen(*foreseen(talk, fresh(12)))
