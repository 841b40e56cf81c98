"""Runs another project's server with a fast BLAS, and tells its memory: one JSON line on stdout per line on stdin.

python benchmarks/peer_server.py mlx_lm.server [its flags …]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading

from mlxchat.engine import backend

backend.prepare()

import mlx.core as mx


def tell(out: int) -> None:
    """Answer each line of stdin with what MLX holds, in bytes."""
    for _ in sys.stdin:
        held = {"active": mx.get_active_memory(), "cache": mx.get_cache_memory()}
        os.write(out, json.dumps(held).encode() + b"\n")


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # whatever the server prints is no answer
    threading.Thread(target=tell, args=(out,), daemon=True).start()
    module, sys.argv = sys.argv[1], sys.argv[1:]
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
