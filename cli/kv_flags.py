"""`--kv-bits` and `--kv-group-size`."""

from __future__ import annotations

from ..engine.options import KVQuantization
from ..errors import UsageError

_BITS = (4, 8)
_GROUP_SIZES = (32, 64, 128)


def kv_quantization(bits: int | None, group_size: int | None) -> KVQuantization | None:
    """How KV is quantized; None without --kv-bits. Raises UsageError for numbers that MLX has no kernel for."""
    if bits is None:
        if group_size is not None:
            raise UsageError("--kv-group-size means nothing without --kv-bits", "add --kv-bits 8, or leave it out")
        return None
    if bits not in _BITS:
        raise UsageError(f"--kv-bits takes 4 or 8, not {bits}", "8 changes answers little, 4 more")
    if group_size is not None and group_size not in _GROUP_SIZES:
        raise UsageError(f"--kv-group-size takes 32, 64 or 128, not {group_size}", "64 is what you get without it")
    return KVQuantization(bits) if group_size is None else KVQuantization(bits, group_size)
