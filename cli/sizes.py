"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re
from decimal import Decimal

from ..errors import UsageError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(text: str, name: str) -> int:
    """Bytes in `2GB`, `500 MB`, `1.5GiB` or plain `4096`. KB, MB, GB are powers of 1000, KiB, MiB, GiB of 1024.

    Raises UsageError naming the option `name` if it is no size or less than a byte.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", text, re.IGNORECASE | re.ASCII)
    if match:
        size = int(Decimal(match[1]) * _UNITS[(match[2] or "").upper()])
        if size > 0:
            return size
    raise UsageError(
        f"{name} takes a size such as 2GB or 500MB, not `{text}`", "without it the size follows free space"
    )
