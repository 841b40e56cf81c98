"""Random conversations against an oracle that recomputes every answer: no token may be wrong, no byte over budget.

    MLXCHAT_BLAS=off python benchmarks/soak.py [--minutes 60] [--kind KIND] [--budget 4MB] [--seed 0] [--json FILE]

The model is a tiny random one, so that an hour is thousands of turns. On the wheel's own BLAS equal calls give equal
bits; on a fast one a tie may fall otherwise. Prints a line a minute and the sum at the end; exit code 1 if a token was
wrong. `resident_bytes_per_step` is the slope of resident memory over the second half.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mlxchat.cli.sizes import parse_size
from support.scripted import model_folder
from support.soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kind", default="gemma3_text", help="architecture of the tiny model")
    parser.add_argument("--budget", default="4MB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = model_folder(work / "model", args.kind, "qwen36")
        soak = Soak(model, work / "work", args.seed, parse_size(args.budget, "--budget"))
        end, told = time.monotonic() + 60 * args.minutes, time.monotonic()
        try:
            while time.monotonic() < end:
                soak.step()
                if time.monotonic() - told > 60:
                    told = time.monotonic()
                    print(json.dumps(soak.toll.to_json() | {"cache": None}), flush=True)
        finally:
            soak.close()
    value = {"schema": "mlxchat.bench.soak/1", "kind": args.kind, "seed": args.seed, **soak.toll.to_json()}
    print(json.dumps(value))
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")
    return 1 if soak.toll.wrong or soak.engine.notices else 0


if __name__ == "__main__":
    sys.exit(main())
