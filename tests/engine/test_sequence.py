"""How a prompt departs from what its conversation last fed."""

from __future__ import annotations

import numpy as np
import pytest
from mlxchat.engine.messages import Message, assistant, user
from mlxchat.engine.sequence import Sequence
from mlxchat.engine.stats import Divergence

pytestmark = pytest.mark.exact

SAID = (user("a"), assistant("b"))


def sequence(*, drops: bool = False) -> Sequence:
    """Fed 0 … 19: system and tools end at 4, the prompt's stable prefix at 10."""
    fed = np.arange(20, dtype=np.int32)
    return Sequence(1, messages=SAID, fed=fed, system_end=4, stable=10, drops_reply=drops)


def prompt(shared: int, more: int = 5) -> np.ndarray:
    return np.array([*range(shared), *[900] * more], np.int32)


@pytest.mark.parametrize(
    ("shared", "messages", "drops", "wanted"),
    [
        (20, (*SAID, user("c")), False, "append"),
        (20, (user("x"),), True, "append"),
        (3, (*SAID, user("c")), False, "system_or_tools_changed"),
        (3, (user("x"),), False, "system_or_tools_changed"),
        (4, (user("x"), *SAID[1:]), False, "history_edited"),
        (12, (user("a"), user("c")), True, "history_edited"),
        (10, (*SAID, user("c")), True, "reasoning_dropped"),
        (15, (*SAID, user("c")), True, "reasoning_dropped"),
        (9, (*SAID, user("c")), True, "retokenized"),
        (15, (*SAID, user("c")), False, "retokenized"),
    ],
)
def test_divergence(shared: int, messages: tuple[Message, ...], drops: bool, wanted: Divergence) -> None:
    assert sequence(drops=drops).divergence(prompt(shared), messages) == wanted


def test_nothing_fed_yet() -> None:
    assert Sequence(1).divergence(prompt(3), SAID) == "first"


def test_a_prompt_that_is_shorter_than_what_was_fed() -> None:
    assert sequence().divergence(np.arange(8, dtype=np.int32), (user("x"),)) == "history_edited"
