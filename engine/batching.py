"""Whether a model's sequences can decode in one call, found out by trying."""

from __future__ import annotations

import mlx.core as mx

from .attention import attend_per_sequence
from .reuse import Reuse
from .runner import UNLOGGED, Fed, ModelRunner

_PROMPTS = ((1, 2, 3), (3, 1, 2, 2, 1))  # of different lengths: a shared position or mask would show
_NEXT = (2, 1)
_MOST = 0.02
"""How far logits may be off, of their own size: kernels differ in a dtype's last bits, errors move them by far more."""


def decodes_together(model: object, runner: ModelRunner, reuse: Reuse) -> bool:
    """Prepare the model for `ModelRunner.forward_together`, and see whether it gives what single calls give.

    Attention that does more with its keys than ask for `scaled_dot_product_attention` (latents, chunks, soft caps of
    its own) can't take several sequences' at once. Takes six calls of a few ids.
    """
    attend_per_sequence(model)
    try:
        alone = [_fed(runner, reuse, prompt) for prompt in _PROMPTS]
        wanted = [runner.forward(0, UNLOGGED, one.live, one.live.length, one.ids) for one in _with_next(alone)]
        got = runner.forward_together(_with_next([_fed(runner, reuse, prompt) for prompt in _PROMPTS]))
        return all(_close(got[row : row + 1], one) for row, one in enumerate(wanted))
    except Exception:  # whatever a model's own code raises over arguments that it doesn't expect
        return False
    finally:
        runner.part()
        mx.clear_cache()


def _fed(runner: ModelRunner, reuse: Reuse, prompt: tuple[int, ...]) -> Fed:
    """A fresh sequence that holds `prompt`."""
    live = reuse.fresh()
    ids = mx.array(prompt, mx.uint32)
    runner.forward(0, UNLOGGED, live, 0, ids)
    runner.settle(live)
    live.append(prompt)
    return Fed(0, UNLOGGED, live, ids)


def _with_next(fed: list[Fed]) -> list[Fed]:
    return [
        Fed(one.request, one.sequence, one.live, mx.array([id_], mx.uint32))
        for one, id_ in zip(fed, _NEXT, strict=True)
    ]


def _close(got: mx.array, wanted: mx.array) -> bool:
    got, wanted = got.astype(mx.float32), wanted.astype(mx.float32)
    return bool((mx.linalg.norm(got - wanted) <= _MOST * mx.linalg.norm(wanted)).item())
