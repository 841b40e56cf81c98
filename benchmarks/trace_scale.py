"""What looking a prompt up costs at the end of a long trace: trie, chain keys, planner, index.

    python benchmarks/trace_scale.py [--requests 2000] [--tokens 100000] [--conversations 20] [--json FILE]

The bar is 5 ms a request over the last hundred (median), in the asking thread's own time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.trace_scale import PARTS, Trace, prompts

BAR_MS = 5.0
LAST = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace(Path(folder))
        asked = [trace.ask(ids) for ids in prompts(given.requests, given.tokens, given.conversations)]
        trace.close()
    last = asked[-LAST:]
    parts = {name: 1000 * statistics.median(one.seconds[name] for one in last) for name in PARTS}
    total = 1000 * statistics.median(one.total for one in last)
    found = {"median_ms": total, "parts_ms": parts, "prompt_tokens": last[-1].prompt, "bar_ms": BAR_MS}
    print(f"{len(asked):,} requests, the last of {last[-1].prompt:,} tokens: median {total:.2f} ms of the last {LAST}")
    for name, value in parts.items():
        print(f"  {name:8} {value:.2f} ms")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))
    sys.exit(total > BAR_MS)


if __name__ == "__main__":
    main()
