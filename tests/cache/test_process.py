"""What only another process can show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.plain

MODULES = (
    "budget",
    "counters",
    "files",
    "forks",
    "index",
    "intake",
    "keeping",
    "kept",
    "kept_folder",
    "keys",
    "notes",
    "order",
    "places",
    "reader",
    "recall",
    "record_header",
    "records",
    "rescan",
    "room",
    "scratch",
    "store",
    "trie",
    "writer",
)
HEAVY = ("mlx", "mlx_lm", "mlx_vlm", "transformers", "huggingface_hub", "tokenizers")

WRITER = """
import sys, threading
from pathlib import Path
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from support.kvstore import NAMESPACE, MIB, Line, put, random_ids
store = Store(Path(sys.argv[1]), NAMESPACE, 64 * MIB, MIB, print)
line = Line(random_ids(200 * BLOCK))
print("ready", flush=True)
while True:
    for n, place in enumerate(line.blocks(), 1):
        put(store, place, n * BLOCK, floats=2000, wait=True)
        store.forget(place, "global") if n % 3 else None
    for n, place in enumerate(line.blocks(), 1):
        store.forget(place, "global")
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_the_storage_room_brings_no_heavy_library():
    script = "import sys\n" + "".join(f"import mlxchat.cache.{name}\n" for name in MODULES)
    script += f"print([name for name in sys.modules if name.split('.')[0] in {HEAVY!r}])"
    run = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the process's files in /proc")
def test_a_kill_while_writing_leaves_no_file(tmp_path):
    directory = tmp_path / "kv"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    links = [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert any(link.startswith(str(directory)) and link.endswith("(deleted)") for link in links)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    assert list(directory.iterdir()) == []


def test_a_program_that_ends_without_closing_its_store_ends(tmp_path):
    script = WRITER.split("while True")[0] + "put(store, line.blocks()[0], BLOCK)\nprint('done')"
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment(), capture_output=True, text=True, timeout=30
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "ready\ndone\n", "")
    assert list(tmp_path.iterdir()) == []
