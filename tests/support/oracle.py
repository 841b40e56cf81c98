"""What a request should have cost, worked out from the call log alone.

The program's own numbers come in at one place: how long a prompt was, which only says where its calls end and decode
begins, and which the log must agree with (the last prompt token is a call of its own).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Ids = list[int]


@dataclass
class Fed:
    """One request by its calls: what it found in the caches, and what each call fed at which position."""

    request: int
    sequence: int
    restored: Ids = field(default_factory=list)
    kind: str = "none"
    calls: list[tuple[int, Ids]] = field(default_factory=list)

    @property
    def ids(self) -> Ids:
        """Everything that its caches held in the end."""
        return [*self.restored, *(one for _, ids in self.calls for one in ids)]

    def add(self, start: int, ids: Ids) -> None:
        """Note a call, which must go on exactly where the caches end."""
        assert start == len(self.ids), f"request {self.request}: a call at {start}, the caches end at {len(self.ids)}"
        self.calls.append((start, ids))

    def prompt(self, tokens: int) -> Ids:
        """The first `tokens` ids, which must end with a call of one token (a prompt of one call has no cut before)."""
        ends = {start + len(ids) for start, ids in self.calls}
        assert tokens in ends, f"request {self.request}: no call ends at {tokens}"
        assert tokens - 1 in ends | {len(self.restored)}, f"request {self.request}: no cut before the last token"
        assert all(len(ids) == 1 for start, ids in self.calls if start >= tokens), "decode fed several ids at once"
        return self.ids[:tokens]

    def prefilled(self, tokens: int) -> int:
        """How many of the prompt's `tokens` were fed by calls."""
        return sum(len(ids) for start, ids in self.calls if start < tokens)


def read_log(file: Path) -> list[Fed]:
    """The requests of a call log in the order in which they ran."""
    found: dict[int, Fed] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        fed = found.setdefault(entry["request"], Fed(entry["request"], entry["sequence"]))
        if "restored" in entry:
            assert not fed.calls, "restored after the first call"
            fed.restored, fed.kind = entry["ids"], entry["restored"]
        else:
            fed.add(entry["start"], entry["ids"])
    return list(found.values())


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids are equal."""
    return next((i for i, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def oracle_new(prompt: Sequence[int], earlier: Iterable[Sequence[int]]) -> int:
    """The fewest tokens that a perfect cache would have prefilled."""
    return max(1, len(prompt) - max((common(prompt, fed) for fed in earlier), default=0))


@dataclass(frozen=True)
class Cost:
    """One request: tokens prefilled by its calls, and by the oracle."""

    request: int
    prompt: Ids
    prefilled: int
    oracle: int

    @property
    def extra(self) -> int:
        """What was prefilled beyond the oracle."""
        return self.prefilled - self.oracle


def costs(log: list[Fed], prompt_tokens: Sequence[int]) -> list[Cost]:
    """The cost of each request of the log; prompt_tokens says for each how long its prompt was.

    A request that was stopped before its prompt was fed is given as 0, and left out.
    """
    assert len(log) == len(prompt_tokens), f"{len(log)} requests in the log, {len(prompt_tokens)} expected"
    found = []
    for index, (fed, tokens) in enumerate(zip(log, prompt_tokens, strict=True)):
        if tokens:
            prompt = fed.prompt(tokens)
            earlier = [other.ids for other in log[:index]]
            found.append(Cost(fed.request, prompt, fed.prefilled(tokens), oracle_new(prompt, earlier)))
    return found


def contains(ids: Sequence[int], part: Sequence[int]) -> bool:
    """Whether `part` stands somewhere in `ids`, in one piece."""
    wanted = list(part)
    return any(list(ids[i : i + len(wanted)]) == wanted for i in range(len(ids) - len(wanted) + 1))
