"""What a request should have reused, worked out apart from the program.

Two answers: the longest prefix that any earlier call fed (from the call log), and the greatest position that every
layer can be restored to (from the design's rules alone: nothing here asks the planner or looks at a record).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Ids = tuple[int, ...]
Layers = Literal["global", "local", "recurrent"]

WINDOW_SLACK = 256  # rows that a window in memory surely holds beyond itself
HELD_STATES = 8  # recurrent states in memory; the oldest is written when there are more
SUPERSEDED_BY = 4  # later anchors of its kind in memory, and a state is never written


def common(a: Ids, b: Ids) -> int:
    """How many leading ids are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class FedLog:
    """Every sequence that the model was ever fed, put together from a call log while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._growing: dict[int, Ids] = {}
        self._left: list[Ids] = []

    def read(self) -> None:
        """Take what the log has grown by: it is written when a request ends, so call this before the next one."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            for line in log:
                self._read += len(line)
                self._take(json.loads(line))

    def longest_match(self, prompt: Ids) -> int:
        """The longest prefix of `prompt` among all that had been fed at the last `read`."""
        return max((common(prompt, fed) for fed in (*self._left, *self._growing.values())), default=0)

    def _take(self, entry: dict[str, object]) -> None:
        number, start, ids = entry["sequence"], entry["start"], tuple(entry["ids"])  # type: ignore[arg-type]
        assert isinstance(number, int)
        assert isinstance(start, int)
        before = self._growing.get(number, ())
        if start < len(before):
            self._left.append(before)
        self._growing[number] = before[:start] + ids


@dataclass
class _Live:
    fed: Ids
    dropped: bool
    states: list[tuple[Ids, str]]


@dataclass
class Ledger:
    """The design's rules. A state or a row belongs to the ids before it, whatever conversation they were fed in.

    rows     kept of every prompt (its last token is one that only a mark at the end needs), and up to a reply's end
             unless the template will drop the reply
    states   kept at the marks of prompts (one at the very end of a prompt stands a token earlier) and at the end of a
             reply that is not dropped, unless superseded
    live     what each conversation last fed and still has in memory; a window there reaches back WINDOW_SLACK rows
             (tests rewind by less, or by far more). Nothing is evicted.
    """

    layers: Layers
    drop_live: bool
    rows: list[Ids] = field(default_factory=list)
    states: list[Ids] = field(default_factory=list)
    live: dict[str, _Live] = field(default_factory=dict)
    fed: list[Ids] = field(default_factory=list)

    def reason(self, prompt: Ids, position: int) -> str:
        """Why not more, where nothing was evicted: all that was once fed is there, or no anchor stands so far."""
        wanted = min(len(prompt) - 1, max((common(prompt, fed) for fed in self.fed), default=0))
        return "none" if position >= wanted else "no_anchor"

    def greatest(self, name: str, prompt: Ids) -> int:
        """The greatest position that every layer can stand at for `prompt`, asked in conversation `name`."""
        for other in [one for one in self.live if one != name]:
            self._park(self.live.pop(other))
        live = self.live.get(name)
        reach = min(len(prompt) - 1, max((common(prompt, fed) for fed in self.rows), default=0))
        if live is not None:
            shared = min(len(prompt) - 1, common(prompt, live.fed))
            if self.layers != "local" or len(live.fed) - shared <= WINDOW_SLACK:
                reach = max(reach, shared)
        if self.layers != "recurrent":
            return reach
        states = [*self.states, *([*(s for s, _ in live.states), live.fed] if live else [])]
        return max((len(s) for s in states if len(s) <= reach and prompt[: len(s)] == s), default=0)

    def note(
        self, name: str, prompt: Ids, marks: Sequence[tuple[int, str]], said: Ids, dropped: bool, position: int
    ) -> None:
        """A request ran from `position` on and fed `said` after its prompt; marks are (position, kind)."""
        before = self.live.pop(name, None)
        held: list[tuple[Ids, str]] = []
        if before is not None:
            if not before.dropped and position < len(before.fed):
                self._park(before)  # a branch that may be come back to
            elif any(len(state) > position for state, _ in before.states):
                self._write(before.states)
            held = [(state, kind) for state, kind in before.states if len(state) <= position]
        self.fed.append(prompt + said)
        self.rows.append(prompt if len(prompt) in dict(marks) else prompt[:-1])
        for place, kind in marks:
            state = prompt[: min(place, len(prompt) - 1)]
            if len(state) > position and all(state != other for other, _ in held):
                held.append((state, kind))
                while len(held) > HELD_STATES:
                    oldest = held.pop(0)
                    self.states += [] if _superseded(oldest, held) else [oldest[0]]
        self.live[name] = _Live(prompt + said, dropped, held)
        if self.drop_live:
            self._park(self.live.pop(name))

    def _write(self, held: list[tuple[Ids, str]]) -> None:
        self.states += [one[0] for one in held if not _superseded(one, held)]

    def _park(self, live: _Live) -> None:
        self._write(live.states)
        if not live.dropped:
            self.rows.append(live.fed)
            self.states.append(live.fed)


def _superseded(one: tuple[Ids, str], held: list[tuple[Ids, str]]) -> bool:
    return sum(kind == one[1] and len(state) > len(one[0]) for state, kind in held) >= SUPERSEDED_BY
