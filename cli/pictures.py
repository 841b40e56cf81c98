"""Pictures that a person names: read, checked and kept with the message before anything is loaded or sent.

A picture is kept as the bytes that were read (a data: URL), so that what happens to the file later changes no message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.messages import ImagePart, Message, Part
from ..errors import MlxchatError, UsageError
from .input_sources import Stdin
from .picture_download import download, is_url

if TYPE_CHECKING:
    from ..engine.pictures import Picture

STDIN = "-"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True)
class StagedPicture:
    """A picture for a message. `name` is what it was called by; `picture` is it, decoded."""

    name: str
    part: ImagePart
    picture: Picture = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.picture.width:,} × {self.picture.height:,})"


def stage(name: str, offline: bool = False, stdin: Stdin | None = None) -> StagedPicture:
    """Read the picture `name`: a path, an http(s) or data: URL, or `-` for stdin.

    `stdin` None: a `-` is a file's name. Raises InputError for what can't be read, DataError for what is no picture or
    too large, UsageError for a URL with `offline`.
    """
    return stage_data(*_bytes_of(name, offline, stdin))


def stage_data(data: bytes, name: str) -> StagedPicture:
    """The picture whose file holds `data`. Raises DataError for what is no picture or too large."""
    from ..engine.pictures import data_url, decode_picture

    picture = decode_picture(data, name)
    return StagedPicture(name, ImagePart(data_url(data)), picture)


def stage_all(names: Sequence[str], offline: bool, stdin: Stdin) -> list[StagedPicture]:
    """The pictures of `-i`, in order. Raises what `stage` raises."""
    return [stage(name, offline, stdin) for name in names]


def with_pictures(message: Message, offline: bool) -> Message:
    """The message with the pictures that its parts name read. Raises what `stage` raises."""
    parts: list[Part] = []
    for part in message.content:
        parts.append(stage(part.source, offline).part if isinstance(part, ImagePart) else part)
    return replace(message, content=tuple(parts))


def restaged(part: ImagePart, name: str | None = None) -> StagedPicture:
    """A picture of a message that is to be sent again. Raises InputError and DataError if it is gone."""
    from ..engine.pictures import open_picture

    known = "a picture" if part.source.startswith("data:") else Path(part.source).name
    return StagedPicture(name or known, part, open_picture(part.source))


def pictures_in(messages: Sequence[Message]) -> list[ImagePart]:
    """Every picture of these messages."""
    return [part for message in messages for part in message.content if isinstance(part, ImagePart)]


def without_lost(messages: Sequence[Message]) -> tuple[tuple[Message, ...], list[str]]:
    """The messages without pictures that are no longer there, and one line about each of those."""
    lost: dict[ImagePart, str] = {}
    for part in pictures_in(messages):
        try:
            restaged(part)
        except MlxchatError as error:
            lost[part] = error.message
    if not lost:
        return tuple(messages), []
    kept = (replace(one, content=tuple(part for part in one.content if part not in lost)) for one in messages)
    return tuple(kept), [f"a picture of this chat is gone, and left out: {why}" for why in lost.values()]


def sees_pictures(model: str, offline: bool) -> bool:
    """Whether the model of that name, which is on disk, takes pictures. Raises ModelError."""
    from ..engine.models import read_config, resolve
    from ..engine.vision_kind import has_vision

    config: Mapping[str, Any] = read_config(resolve(model, offline).path)
    return has_vision(config)


def _bytes_of(name: str, offline: bool, stdin: Stdin | None) -> tuple[bytes, str]:
    """The bytes that `name` stands for, and what to call them in a line."""
    from ..engine.pictures import data_url_bytes, file_bytes

    if name == STDIN and stdin is not None:
        return stdin.read(), "stdin"
    if not name.strip():
        raise UsageError("a picture needs a name, and this one is empty", "give a path, a URL, or - for stdin")
    scheme = _SCHEME.match(name)
    if scheme and scheme[1].lower() not in ("http", "https", "file"):
        raise UsageError(
            f"pictures aren't fetched by {scheme[1]}, only by http and https", "download it, and name the file"
        )
    if name.startswith("data:"):
        return data_url_bytes(name), "the data: URL"
    if is_url(name):
        return download(name, offline), name
    try:
        path = name if name.startswith("file:") else str(Path(name).expanduser())
    except (RuntimeError, ValueError):  # there is no such user
        path = name
    return file_bytes(path, name=name, pipes=True), name
