"""What decode costs with the temporal-order window cache, against mlx-lm's ring, on the same weights.

    python benchmarks/window.py [--model gemma3-270m] [--pairs 120] [--tokens 16]

Both sequences are prefilled past the window, then each goes on decoding its own; pairs alternate A B B A. The cost of
compacting (once in 128 tokens) falls into the pairs as it comes. Prints a line, then JSON.
"""

from __future__ import annotations

import argparse
import json

from mlxchat.engine import backend

backend.prepare()

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlxchat.cache.layers import pending_arrays
from mlxchat.cache.window import WindowKVCache, use_window_caches
from mlxchat.engine.loader import load
from mlxchat.engine.models import resolve
from paired import alternate, ratio


class Decoder:
    """One sequence: prefilled once, then decoded further by each call."""

    def __init__(self, model: object, caches: list[object], length: int, tokens: int) -> None:
        self._model, self._caches, self._tokens = model, caches, tokens
        logits = model(mx.arange(5, 5 + length)[None], cache=caches)  # type: ignore[operator]
        self._next = mx.argmax(logits[:, -1], axis=-1)
        mx.eval(self._next, pending_arrays(caches))

    def __call__(self) -> None:
        for _ in range(self._tokens):
            logits = self._model(self._next[None], cache=self._caches)  # type: ignore[operator]
            self._next = mx.argmax(logits[:, -1], axis=-1)
            for cache in self._caches:
                if isinstance(cache, WindowKVCache):
                    cache.drop_view()
            mx.eval(self._next)
            for cache in self._caches:
                if isinstance(cache, WindowKVCache):
                    cache.compact()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma3-270m")
    parser.add_argument("--pairs", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--length", type=int, default=800, help="tokens prefilled first; past the window")
    args = parser.parse_args()
    model = load(resolve(args.model)).model
    ours = Decoder(model, use_window_caches(make_prompt_cache(model)), args.length, args.tokens)
    stock = Decoder(model, make_prompt_cache(model), args.length, args.tokens)
    ours(), stock()  # warm-up
    found = ratio(alternate(ours, stock, args.pairs))
    print(f"decode time, window cache ÷ stock ring, {args.model}: {found}")
    print(
        json.dumps({"schema": "mlxchat.bench.window/1", "model": args.model, "tokens": args.tokens, **found.to_json()})
    )


if __name__ == "__main__":
    main()
