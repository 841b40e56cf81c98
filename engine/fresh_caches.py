"""The cache objects that a new sequence begins with: the model's own kinds, in the forms that mlxchat can rewind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from ..cache.layers import flatten, pending_arrays
from ..cache.picture_mask import use_picture_masks
from ..cache.quantized import use_quantized_caches
from ..cache.window import use_window_caches
from ..errors import UsageError
from .options import KVQuantization

_UNFIT = "its attention takes no quantized keys and values"
_PROBE_IDS = (1, 2, 3)  # a call of several ids, then one of one, as prefill and decode make them


@dataclass(frozen=True)
class FreshCaches:
    """Makes the caches of one model, anew for each call.

    model     mlx-lm's module, or the language model of mlx-vlm's
    whole     whether its pictures are seen whole, so that masks have to know them
    """

    model: Any
    quantization: KVQuantization | None = None
    whole: bool = False

    def __call__(self) -> list[Any]:
        """One empty cache for each layer that has one."""
        caches = use_window_caches(make_prompt_cache(self.model))
        if self.quantization is not None:
            caches = use_quantized_caches(caches, self.quantization.bits, self.quantization.group_size)
        return use_picture_masks(caches) if self.whole else caches

    def check_quantization(self, name: str) -> str:
        """Try the quantized caches on two short calls; what is to be said about them, "" for nothing.

        Raises UsageError where the model `name` can't work with them: its attention takes no quantized rows (latent
        attention, sinks), or the group size doesn't divide its rows.
        """
        if self.quantization is None:
            return ""
        caches = self()
        if not any(type(leaf).__name__.endswith("QuantizedKVCache") for leaf in flatten(caches)):
            return f"--kv-bits changes nothing for {name}: none of its layers has a KV cache that can be quantized"
        try:
            for ids in (_PROBE_IDS[:-1], _PROBE_IDS[-1:]):
                made = self.model(mx.array([ids], mx.uint32), cache=caches)
                mx.eval(getattr(made, "logits", made), pending_arrays(caches))
        except Exception as error:
            # Where the attention code can't do it, the message is about its own variables.
            cause = str(error).strip().splitlines()[0] if isinstance(error, ValueError) else _UNFIT
            raise UsageError(
                f"{name} can't run with --kv-bits {self.quantization.bits} and groups of "
                f"{self.quantization.group_size}: {cause}",
                "try another --kv-group-size (32, 64 or 128), or leave --kv-bits out",
            ) from error
        return ""
