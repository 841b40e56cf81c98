"""The hub's library played by a stand-in: sizes, progress, and its errors in our words."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors
from mlxchat.engine import download, folders, hub, models
from mlxchat.errors import DownloadError, MlxchatError, ModelNotFound
from support.model_folders import isolate, make_folder

pytestmark = pytest.mark.plain

NAME = "org/tiny"


class Hub:
    """Serves one tiny model, slowly enough to be watched; or raises `error`."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.error: Exception | None = None
        self.calls: list[bool] = []

    def snapshot_download(self, name: str, *, allow_patterns: list[str], cache_dir: Path, dry_run: bool = False) -> Any:
        assert "*.py" not in allow_patterns
        self.calls.append(dry_run)
        if self.error is not None:
            raise self.error
        if dry_run:
            return [
                SimpleNamespace(file_size=40_000_000, will_download=True),
                SimpleNamespace(file_size=7, will_download=False),
            ]
        entry = cache_dir / ("models--" + name.replace("/", "--"))
        snapshot = entry / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (entry / "blobs").mkdir()
        for file in self.source.iterdir():
            (entry / "blobs" / file.name).write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(entry / "blobs" / file.name)
        time.sleep(1.2)
        return str(snapshot)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    isolate(monkeypatch, tmp_path)
    made = Hub(make_folder(tmp_path / "source"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    return made


def test_a_pull_asks_with_the_size_and_reports_growth(served: Hub) -> None:
    questions: list[str] = []
    steps: list[int] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return True

    path = download.pull(NAME, confirm=confirm, progress=lambda what, done, total: steps.append(done))
    assert questions == ["Download org/tiny (40 MB) from the Hugging Face hub?"]
    assert folders.huggingface_dir() in path.parents
    assert models.resolve(NAME).path == path
    assert steps == sorted(steps)
    assert steps[-1] > 0
    assert not [t for t in threading.enumerate() if t.name == "mlxchat-download"]


def test_nothing_is_asked_of_the_hub_where_no_download_can_follow(served: Hub) -> None:
    with pytest.raises(DownloadError, match="unasked"):
        download.pull(NAME, confirm=None)
    with pytest.raises(DownloadError, match="--offline"):
        download.pull(NAME, confirm=lambda question: True, offline=True)
    assert served.calls == []
    with pytest.raises(DownloadError, match="declined"):
        download.pull(NAME, confirm=lambda question: False)
    assert served.calls == [True]


def test_ensure_finds_it_on_disk_the_second_time(served: Hub) -> None:
    first = models.ensure(NAME, yes=True)
    served.calls.clear()
    assert models.ensure(NAME) == first
    assert served.calls == []


def _response_error(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, "404 not found\nmore lines")
    return error


@pytest.mark.parametrize(
    ("error", "ours", "said"),
    [
        (_response_error(errors.GatedRepoError), DownloadError, "gated"),
        (_response_error(errors.RepositoryNotFoundError), ModelNotFound, "no model"),
        (errors.OfflineModeIsEnabled("offline mode"), DownloadError, "offline mode"),
        (errors.LocalEntryNotFoundError("no connection\nsecond line"), DownloadError, "no connection"),
        (ConnectionError(), DownloadError, "ConnectionError"),
    ],
)
def test_errors_are_one_line_each(error: Exception, ours: type[MlxchatError], said: str, served: Hub) -> None:
    served.error = error
    for call in (lambda: hub.size_of(NAME), lambda: hub.snapshot(NAME, 1, lambda *step: None)):
        with pytest.raises(ours, match=said) as caught:
            call()
        assert "\n" not in caught.value.message
        assert caught.value.hint
