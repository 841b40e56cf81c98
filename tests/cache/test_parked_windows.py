"""A reply longer than the window, kept (a tool loop), then parked: its end must be restorable from what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlxchat.cache.checkpoint import Checkpointer

pytestmark = pytest.mark.exact


def park_and_go_on(model: Any, draw: Any, drivers: Any, kind: str, reply: int) -> tuple[Any, bool]:
    """The turn after a parked reply, and whether its logits are those of the same sequence never parked."""
    logits = []
    prompt, said, more = draw(300), draw(reply), draw(60)
    for park in (True, False):
        cached, _ = drivers(model(kind))
        # Blocks of the reply are held back while it is decoded (drops), but it is kept: a tool call ended it.
        cached.turn("a", prompt, said, drops=True)
        cached.sequences["a"].drops_reply = False
        if park:
            cached.drop_live("a")
        stats, found = cached.turn("a", [*prompt, *said, *more], [])
        logits.append((stats, found))
    return logits[0][0], np.array_equal(logits[0][1], logits[1][1])


@pytest.mark.parametrize(
    ("kind", "reply"), [pytest.param("gemma3_text", 811, marks=pytest.mark.slow), ("gpt_oss", 420)]
)
def test_the_end_of_a_long_kept_reply(kind: str, reply: int, model: Any, draw: Any, drivers: Any) -> None:
    stats, equal = park_and_go_on(model, draw, drivers, kind, reply)
    assert stats.cached_tokens == 300 + reply
    assert stats.restore_kind == "anchor"
    assert equal


def test_whole_blocks_alone_would_not_do(model: Any, draw: Any, drivers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: records of whole blocks only leave a gap at the window's start."""
    real = Checkpointer._rows

    def whole(self: Any, start: int, end: int, wait: bool) -> None:
        if all(self._live.first_row(group) <= start for group in self._live.layout.rows):
            real(self, start, end, wait)

    monkeypatch.setattr(Checkpointer, "_rows", whole)
    stats, _ = park_and_go_on(model, draw, drivers, "gpt_oss", 420)
    assert stats.cached_tokens < 720
