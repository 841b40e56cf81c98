"""How long after the start `--help`, the prompt and the first token are there, and what each of them waits for.

    python benchmarks/startup.py [--models smollm2,gemma3-270m] [--runs 5] [--json FILE]

Fresh processes, the files in the page cache (a run before the first is not counted); medians, in milliseconds from the
start of the process.

interpreter   `python -c pass`: what every program in Python waits for
help          `mlxchat --help`: the interpreter, typer, the commands' options
prompt        `mlxchat` in a terminal until one can type: help's, prompt-toolkit, config.json and the model's file sizes
loaded        `mlxchat QUESTION --jsonl`, its event `session`: MLX, mlx-lm and transformers imported, tokenizer,
              template and weights read
first token   the same run, its first event with text: loaded, and the question's prefill
chat          a question typed the moment the prompt is there, until its answer of one token stands
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect

PROGRAM = ["-m", "mlxchat"]
QUESTION = "Say one word."
STAGES = ["interpreter", "help", "prompt", "loaded", "first token", "chat"]
PATIENCE_S = 60


def since(started: float) -> float:
    return 1000 * (time.perf_counter() - started)


def finished(arguments: list[str]) -> float:
    """Until a run of Python has ended."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return since(started)


def one_shot(model: str) -> tuple[float, float]:
    """Until the model is loaded, and until the first token of an answer."""
    started = time.perf_counter()
    given = [*PROGRAM, "-m", model, QUESTION, "--jsonl", "--temp", "0", "--max-tokens", "1", "--no-save", "--no-stdin"]
    with subprocess.Popen([sys.executable, *given], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen: dict[str, float] = {}
        for kind, when in arrivals(process.stdout, started):
            seen.setdefault(kind, when)
    return seen["session"], seen["text"]


def arrivals(lines: Any, started: float) -> Iterator[tuple[str, float]]:
    """The kinds of events, each with when it came."""
    for line in lines:
        yield json.loads(line)["type"], since(started)


def in_a_terminal(model: str) -> tuple[float, float]:
    """Until one can type, and until a question typed then is answered with one token."""
    started = time.perf_counter()
    given = [*PROGRAM, "-m", model, "--temp", "0", "--max-tokens", "1", "--no-save"]
    alone = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1"}  # nobody here says where the cursor is
    child = pexpect.spawn(sys.executable, given, PATIENCE_S, encoding="utf-8", env=alone, dimensions=(40, 100))
    child.delaybeforesend = None
    try:
        child.expect(r"\x1b\[\?2004h[^>]*>")  # pasted text is asked for, and the prompt's sign drawn
        prompt = since(started)
        child.send(QUESTION + "\r")
        child.expect(r"tok/s|cut off|length")
        return prompt, since(started)
    finally:
        child.close(force=True)


def measure(model: str, runs: int) -> dict[str, float]:
    """The medians of one model's stages."""
    seen: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for run in range(runs + 1):
        loaded, first = one_shot(model)
        prompt, chat = in_a_terminal(model)
        times = [finished(["-c", "pass"]), finished([*PROGRAM, "--help"]), prompt, loaded, first, chat]
        if run:
            for stage, value in zip(STAGES, times, strict=True):
                seen[stage].append(value)
    return {stage: round(statistics.median(values), 1) for stage, values in seen.items()}


def main() -> None:
    """Measure, print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="smollm2,gemma3-270m")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{'model':14}" + "".join(f"{stage:>13}" for stage in STAGES))
    rows = []
    for model in args.models.split(","):
        rows.append({"model": model, **measure(model, args.runs)})
        print(f"{model:14}" + "".join(f"{rows[-1][stage]:13}" for stage in STAGES), flush=True)
    document = json.dumps({"schema": "mlxchat.bench.startup/1", "runs": args.runs, "rows": rows})
    print(document)
    if args.json:
        args.json.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
