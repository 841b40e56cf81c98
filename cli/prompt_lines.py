"""A prompt's ids as lines: where each stretch begins, and whether it was cached or is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..engine.stats import RequestStats

PER_LINE = 12
Stretch = tuple[str, int]


def stretches(tokens: int, cached: int, ahead: int = 0) -> list[Stretch]:
    """Names and lengths of what a prompt of `tokens` consists of, in order, empty ones left out."""
    found = [("cached", cached), ("ahead", ahead), ("new", tokens - cached - ahead)]
    return [(name, length) for name, length in found if length > 0]


def sent_as(stats: RequestStats) -> tuple[int, int]:
    """How many tokens of a prompt that was sent were reused, and how many had been prefilled ahead of time."""
    return stats.cached_tokens, stats.idle_prefill_tokens + stats.typeahead_prefill_tokens


def id_lines(ids: Sequence[int], parts: Sequence[Stretch]) -> Iterator[str]:
    """`cached     0  1 4093 198 …`: the kind of each id, its position, twelve of them a line."""
    width, start = len(f"{len(ids):,}"), 0
    for name, length in parts:
        for at in range(start, start + length, PER_LINE):
            shown = " ".join(str(int(one)) for one in ids[at : min(at + PER_LINE, start + length)])
            yield f"{name:<6}  {at:>{width},}  {shown}"
        start += length
