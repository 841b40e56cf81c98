"""Attention over several sequences that keep their own keys: each one's by itself, with the model's own function.

mlx-lm's and mlx-vlm's models all call `scaled_dot_product_attention`, each by a name of its own module. That name is
where one call for all sequences becomes one for each. It is put there once, only for models that are to run several
sequences together, and it does nothing unless it meets `PerSequence`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import mlx.core as mx

from ..cache.together import PerSequence

_NAME: Final = "scaled_dot_product_attention"


def attend_per_sequence(model: Any) -> None:
    """Prepare the modules that the layers of `model` (an mlx.nn.Module) come from. Doing it again changes nothing."""
    for name in {type(part).__module__ for part in model.modules()}:
        module = sys.modules[name]
        attend = getattr(module, _NAME, None)
        if attend is not None and not hasattr(attend, "__wrapped__"):
            setattr(module, _NAME, _parting(attend))


def _parting(attend: Callable[..., mx.array]) -> Callable[..., mx.array]:
    @wraps(attend)
    def parted(
        queries: mx.array, keys: Any, values: Any, cache: Any, scale: float, mask: Any = None, **more: Any
    ) -> mx.array:
        """queries [sequences, heads, 1, width]; the same of the results."""
        if not isinstance(keys, PerSequence):
            return attend(queries, keys, values, cache, scale=scale, mask=mask, **more)
        count = len(keys)
        masks = mask if isinstance(mask, PerSequence) else (mask,) * count
        leaves = (None,) * count if cache is None else cache.leaves
        return mx.concatenate(
            [
                attend(queries[i : i + 1], keys[i], values[i], leaves[i], scale=scale, mask=masks[i], **more)
                for i in range(count)
            ]
        )

    return parted
