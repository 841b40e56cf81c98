"""A forked process, and a second program beside this one: neither disturbs the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from mlxchat.cache import forks
from mlxchat.cache.kept import KeptFile
from mlxchat.cache.keys import BLOCK
from mlxchat.cache.store import Store
from support.kvstore import MIB, NAMESPACE, Line, entry_at, put, random_ids, read_back

pytestmark = [pytest.mark.exact, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

LINE = Line(random_ids(4 * BLOCK))


def filled(folder: Path, kept: bool) -> Store:
    file = KeptFile.of(folder, NAMESPACE, "") if kept else None
    store = Store(folder, NAMESPACE, MIB, MIB, print, kept=file)
    for n, place in enumerate(LINE.blocks(), 1):
        put(store, place, n * BLOCK, user="a")
    assert store.drain(10)
    return store


def in_a_fork(work: Callable[[], bool]) -> bool:
    """What `work` says in a forked process, which then ends at once."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a lock that nobody will release ends the child, not the test run
        code = 1
        try:
            code = 0 if work() else 1
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def tries_everything(store: Store) -> bool:
    """A forked process finds nothing, keeps nothing, and none of it hangs or raises."""
    place = LINE.place(BLOCK)
    answers = [store.contains(place, "global"), store.accepts, put(store, place, BLOCK, wait=True) != "off"]
    store.leave("a")
    store.shrink(0)
    store.expire(0)
    store.check()
    store.close()
    return answers == [False, False, False]


@pytest.mark.parametrize("kept", [False, True])
def test_a_fork_leaves_the_store_alone(tmp_path: Path, kept: bool) -> None:
    store = filled(tmp_path, kept)
    assert in_a_fork(lambda: tries_everything(store))
    entries = [entry_at(store, place) for place in LINE.blocks()]
    assert read_back(store, entries) == (entries, [])
    store.check()
    store.close()
    if kept:
        assert len(KeptFile.of(tmp_path, NAMESPACE, "").entries) == 4


def test_a_fork_while_another_thread_holds_the_lock(tmp_path: Path) -> None:
    store = filled(tmp_path, kept=False)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with store.lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    assert in_a_fork(lambda: tries_everything(store))
    release.set()
    thread.join()
    store.close()


def test_planted_a_fork_that_owns_the_store_destroys_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, kept=False)
    monkeypatch.setattr(forks, "_known", ())
    in_a_fork(lambda: bool(store.leave("a")))
    _, failed = read_back(store, [entry_at(store, place) for place in LINE.blocks()])
    assert failed
    store.close()


def test_a_second_program_in_the_same_folder_has_a_file_of_its_own(tmp_path: Path) -> None:
    store = filled(tmp_path, kept=False)
    script = (
        "import sys; from pathlib import Path; from mlxchat.cache.store import Store\n"
        "from mlxchat.cache.keys import BLOCK; from support.kvstore import *\n"
        "store = Store(Path(sys.argv[1]), NAMESPACE, MIB, MIB, print)\n"
        "line = Line(random_ids(4 * BLOCK))\n"
        "assert not store.contains(line.place(BLOCK), 'global')\n"
        "[put(store, place, n * BLOCK) for n, place in enumerate(line.blocks(), 1)]\n"
        "assert store.drain(10); store.shrink(0); store.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=True)
    entries = [entry_at(store, place) for place in LINE.blocks()]
    assert read_back(store, entries) == (entries, [])
    store.close()
    assert list(tmp_path.iterdir()) == []
