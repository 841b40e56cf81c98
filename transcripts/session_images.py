"""The pictures of saved chats: files named by the hash of their bytes, so that one picture is kept once.

A session's lines name them as `images/HASH.EXT`, relative to the folder of sessions.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..engine.messages import ImagePart, Message, Part
from .session_appender import FILE_MODE, make_private_folder

FOLDER = "images"
_TYPES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "image/bmp": ".bmp",
    "image/avif": ".avif",
    "image/x-portable-anymap": ".ppm",
}


class ImageFolder:
    """The `images` folder below a folder of sessions."""

    def __init__(self, sessions: Path) -> None:
        self._sessions = sessions
        self._folder = sessions / FOLDER

    def stored(self, message: Message) -> Message:
        """The message with its pictures copied here and named by their hash. What can't be read stays as it is."""
        return with_sources(message, self._store)

    def located(self, message: Message) -> Message:
        """The message with the paths of pictures that are kept here."""
        return with_sources(message, self._locate)

    def sources(self, message: Message) -> set[str]:
        """The names of the pictures of a message that are kept here."""
        return {part.source for part in message.content if isinstance(part, ImagePart) and _is_ours(part.source)}

    def remove_all_but(self, kept: set[str]) -> int:
        """Delete every picture that is not among the names in `kept`; how many."""
        removed = 0
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else []:
            if path.is_file() and f"{FOLDER}/{path.name}" not in kept:
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    @contextmanager
    def held(self) -> Iterator[None]:
        """While a picture is stored and its line written, or while unused ones are deleted: one of them at a time."""
        make_private_folder(self._folder)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks
            yield
        finally:
            os.close(descriptor)

    def _store(self, source: str) -> str:
        if _is_ours(source):
            return source
        found = _bytes_of(source)
        if found is None:
            return source
        data, suffix = found
        name = hashlib.sha256(data).hexdigest() + suffix
        path = self._folder / name
        if not path.exists():
            make_private_folder(self._folder)
            new = path.with_suffix(f".{os.getpid()}.new")
            descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            new.replace(path)
        return f"{FOLDER}/{name}"

    def _locate(self, source: str) -> str:
        return str(self._sessions / source) if _is_ours(source) else source


def has_images(message: Message) -> bool:
    """Whether a picture goes with the message."""
    return any(isinstance(part, ImagePart) for part in message.content)


def _is_ours(source: str) -> bool:
    folder, _, name = source.partition("/")
    return folder == FOLDER and bool(name) and name == Path(name).name


def _bytes_of(source: str) -> tuple[bytes, str] | None:
    """The bytes behind a data: URL or a local path, and a suffix; None for any other."""
    if source.startswith("data:"):
        head, _, body = source.partition(",")
        kind = head.removeprefix("data:").partition(";")[0]
        try:
            return base64.b64decode(body, validate=True), _TYPES.get(kind, "")
        except (binascii.Error, ValueError):
            return None
    if source.startswith(("http://", "https://")):
        return None
    path = Path(source).expanduser()
    try:
        return path.read_bytes(), path.suffix.lower()
    except OSError:
        return None


def with_sources(message: Message, change: Callable[[str], str]) -> Message:
    """The message with the source of each picture changed."""
    if not has_images(message):
        return message
    parts: list[Part] = []
    for part in message.content:
        parts.append(replace(part, source=change(part.source)) if isinstance(part, ImagePart) else part)
    return replace(message, content=tuple(parts))
