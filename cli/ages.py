"""Spans of time, as people write and read them."""

from __future__ import annotations

import re

from ..errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_STEPS = (("y", "y"), ("w", "w"), ("d", "d"), ("h", "h"), ("m", "min"))


def parse_age(text: str, name: str = "--older-than") -> int:
    """Seconds in `90s`, `45m`, `12h`, `30d`, `2w`, `1y`. Raises UsageError naming the option for anything else."""
    match = re.fullmatch(r"\s*(\d{1,6})\s*([smhdwy])\s*", text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise UsageError(
            f"{name} takes an age such as 30d, not `{text}`", "s seconds, m minutes, h hours, d days, w weeks, y"
        )
    return int(match[1]) * _SECONDS[match[2].lower()]


def age_text(seconds: float) -> str:
    """How long ago, in one unit: `now`, `5 min`, `3 h`, `2 d`, `6 w`, `2 y`."""
    for unit, name in _STEPS:
        count = int(seconds // _SECONDS[unit])
        if count and (unit != "w" or count > 1):
            return f"{count} {name}"
    return "now"
