"""The same requests through mlxchat and through the servers of mlx-lm, mlx-vlm and vllm-mlx, one after another.

    python benchmarks/peers.py [--work rewind,hard,agent] [--peers mlx-lm,mlx-vlm] [--model gemma3-270m] [--json FILE]
                               [--python vllm-mlx=FILE]

Each request goes to every program before the next is made, in an order that rotates, the next one when the last is at
rest (some write files when they have answered); mlxchat's answer is what the conversation goes on with. `extra`: tokens
prefilled beyond those that no earlier prompt had (the last token of a prompt is always fed). `ttft`: from the request
to the first word, HTTP included for the servers. `memory`: what MLX holds, active and cached, less the weights, and
`disk`, both when the request has ended. The summary counts the requests on which mlxchat was worse than the best of the
others.

A server that doesn't say what it cached, such as vllm-mlx, counts as having cached nothing: look at its times.
vllm-mlx wants another version of mlx-lm than mlxchat: it goes into a virtual environment of its own (`pip install
vllm-mlx`, then `pip install --no-deps -e .` here), whose interpreter --python names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from mlxchat.engine import backend

backend.prepare()

import mlx.core as mx
import psutil
from mlxchat.engine.models import resolve
from peer_clients import MODEL, Answer, Client, Own, Server
from peer_work import WORK, Ask

MOST_REST_S, LOOK_S, AT_REST = 20.0, 0.3, 0.1
"""At rest: all of them together use less than a tenth of a core between two looks."""
TEMPLATE = Path(__file__).with_name("peers.jinja")
SERVERS = {
    "mlx-lm": ["mlx_lm.server", "--model", MODEL],
    "mlx-vlm": ["mlx_vlm.server.cli", "--model", MODEL],
    "vllm-mlx": ["vllm_mlx.cli", "serve", MODEL, "--continuous-batching"],  # without it, it caches no prompts
}


@dataclass(frozen=True)
class Row:
    """One request as one program answered it."""

    work: str
    request: str
    program: str
    prompt: int
    extra: int
    ttft_s: float
    memory: int
    disk: int

    def line(self) -> str:
        sizes = f"{self.memory / 2**20:8.1f} {self.disk / 2**20:8.1f}"
        counts = f"{self.prompt:6} {self.extra:6} {self.ttft_s:7.3f}"
        return f"{self.work:7} {self.request:16} {self.program:8} {counts} {sizes}"


def shared(ids: list[int], earlier: list[list[int]]) -> int:
    """The longest beginning that `ids` has in common with an earlier prompt, short of its last token."""
    best = 0
    for other in earlier:
        same = next((i for i, (a, b) in enumerate(zip(ids, other, strict=False)) if a != b), min(len(ids), len(other)))
        best = max(best, same)
    return min(best, len(ids) - 1)


def run(work: str, own: Own, clients: list[Client]) -> list[Row]:
    """All requests of one piece of work."""
    rows: list[Row] = []
    earlier: list[list[int]] = []
    requests = WORK[work]()
    ask: Ask | None = next(requests)
    turn = 0
    while ask is not None:
        ids = own.ids(ask.messages)
        common = shared(ids, earlier)
        earlier.append(ids)
        order = clients[turn % len(clients) :] + clients[: turn % len(clients)]
        answers: dict[str, Answer] = {}
        for client in order:
            answers[client.name] = client.ask(ask)
            rest(clients)
        for client in clients:
            got = answers[client.name]
            extra = common - got.cached
            rows.append(Row(work, ask.name, client.name, got.prompt, extra, got.ttft_s, got.memory, got.disk))
            print(rows[-1].line(), flush=True)
        turn += 1
        try:
            ask = requests.send(answers[own.name].text)
        except StopIteration:
            ask = None
    return rows


def rest(clients: list[Client]) -> None:
    """Wait until none of them works any more."""
    processes = [psutil.Process(client.process) for client in clients]
    until, before = time.monotonic() + MOST_REST_S, -1.0
    while time.monotonic() < until:
        used = sum(sum(process.cpu_times()[:2]) for process in processes)
        if used - before < AT_REST * LOOK_S:
            return
        before = used
        time.sleep(LOOK_S)


def summary(rows: list[Row]) -> dict[str, Any]:
    """mlxchat against the best of the others, request by request."""
    by_request: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_request.setdefault((row.work, row.request), {})[row.program] = row
    lost: dict[str, list[str]] = {"extra": [], "ttft": [], "memory": [], "sum": []}
    ratios: list[float] = []
    for (work, request), programs in by_request.items():
        others = [row for name, row in programs.items() if name != Own.name]
        if not others:
            continue
        own, where = programs[Own.name], f"{work} {request}"
        ratios.append(own.ttft_s / min(one.ttft_s for one in others))
        checks = {
            "extra": own.extra > min(one.extra for one in others),
            "ttft": own.ttft_s > min(one.ttft_s for one in others),
            "memory": 3 * own.memory > min(one.memory for one in others),
            "sum": own.memory + own.disk > min(one.memory + one.disk for one in others),
        }
        for name, is_worse in checks.items():
            if is_worse:
                lost[name].append(where)
    mean = exp(statistics.fmean(map(log, ratios))) if ratios else None
    return {"requests": len(by_request), "lost": lost, "ttft_ratio_to_best": mean}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--peers", default="mlx-lm,mlx-vlm")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=FILE", help="its interpreter")
    parser.add_argument("--model", default="gemma3-270m")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folder = resolve(args.model).path
    interpreters = dict(one.split("=", 1) for one in args.python)
    rows: list[Row] = []
    for work in args.work.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            base = Path(temporary)
            model = with_template(folder, base / "model")
            own = Own(model, TEMPLATE, base)
            clients: list[Client] = [own]
            try:
                for name in args.peers.split(","):
                    (base / name).mkdir()
                    python = interpreters.get(name, sys.executable)
                    clients.append(Server(name, python, SERVERS[name], model, base / name, own.weights))
                rows += run(work, own, clients)
            finally:
                for client in clients:
                    client.close()
    value = {"schema": "mlxchat.bench.peers/1", "summary": summary(rows), "rows": [asdict(row) for row in rows]}
    print(json.dumps(value["summary"], indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(value, indent=2) + "\n")
    return 0


def with_template(folder: Path, copy: Path) -> Path:
    """The model in float32, which a CPU computes fastest, with the template that all programs are to use."""
    copy.mkdir()
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            weights = mx.load(str(file))
            mx.save_safetensors(str(copy / file.name), {name: one.astype(mx.float32) for name, one in weights.items()})
        elif file.name not in ("chat_template.jinja", "mlxchat.json"):
            (copy / file.name).write_bytes(file.read_bytes())
    mx.clear_cache()
    (copy / "chat_template.jinja").write_text(TEMPLATE.read_text())
    return copy


if __name__ == "__main__":
    sys.exit(main())
