"""What goes with the next message of a conversation: files, and pictures that the user has staged."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from ..engine.messages import FilePart, ImagePart, Message, TextPart
from ..engine.vision_kind import sees_no_pictures
from ..errors import MlxchatError, UsageError
from .input_sources import read_text, user_message
from .picture_download import is_url
from .pictures import StagedPicture, restaged, stage, stage_data

_OTHER_MODEL = "/model NAME goes on with one that has vision, /models lists what is here"


class Attachments:
    """Files and pictures for one message. What comes back with a message that wasn't answered is staged again.

    model     the model's name, for error lines; `sees` says whether it takes pictures
    offline   whether a picture's URL is refused
    """

    def __init__(
        self,
        files: Sequence[FilePart] = (),
        pictures: Sequence[StagedPicture] = (),
        *,
        model: str = "",
        sees: bool = False,
        offline: bool = False,
    ) -> None:
        self.files = list(files)
        self.pictures = list(pictures)
        self._model = model
        self.sees = sees
        self._offline = offline
        self._sent: dict[ImagePart, str] = {}

    @property
    def names(self) -> list[str]:
        """What goes with the next message."""
        return [*map(str, self.pictures), *(part.name for part in self.files)]

    def stage(self, source: str) -> StagedPicture:
        """Read a picture for the next message. Raises ModelUnsupported, InputError, DataError, UsageError."""
        if not self.sees:
            raise sees_no_pictures(self._model, _OTHER_MODEL)
        picture = stage(_path_of(source), self._offline)
        self.pictures.append(picture)
        return picture

    def stage_bytes(self, data: bytes, name: str) -> StagedPicture:
        """A picture that is no file, for the next message. Raises ModelUnsupported, DataError."""
        if not self.sees:
            raise sees_no_pictures(self._model, _OTHER_MODEL)
        picture = stage_data(data, name)
        self.pictures.append(picture)
        return picture

    def stage_file(self, source: str) -> FilePart:
        """Read a text file for the next message. Raises InputError, DataError."""
        name = _path_of(source)
        part = FilePart(name, read_text(name))
        self.files.append(part)
        return part

    def use(self, model: str, sees: bool) -> None:
        """Another model takes the messages from now on."""
        self._model, self.sees = model, sees

    def detach(self, which: str) -> list[str]:
        """Let go of the N-th thing, of those called `which`, or, of "", of all; their names. Raises UsageError."""
        staged: list[StagedPicture | FilePart] = [*self.pictures, *self.files]
        if which.isdecimal() and 0 < int(which) <= len(staged):
            gone = [staged[int(which) - 1]]
        else:
            gone = [one for one in staged if which in ("", one.name, Path(one.name).name)]
        if not staged:
            raise UsageError("nothing goes with the next message", "/image PATH or /file PATH adds something")
        if not gone:
            there = "1" if len(staged) == 1 else f"1 to {len(staged)}"
            raise UsageError(f"nothing is called {which}", f"/detach takes {there}, or a name; /image alone lists them")
        self.pictures = [one for one in self.pictures if not any(one is other for other in gone)]
        self.files = [one for one in self.files if not any(one is other for other in gone)]
        return [one.name for one in gone]

    def clear(self) -> None:
        """Nothing goes with the next message."""
        self.files, self.pictures = [], []

    def message(self, text: str) -> Message:
        """The next message; nothing goes with the one after it."""
        self._sent |= {one.part: one.name for one in self.pictures}
        message = user_message(text, self.files, [one.part for one in self.pictures])
        self.clear()
        return message

    def take_back(self, message: Message, tell: Callable[[str], None]) -> str:
        """Stage what went with a message again; its words. `tell` gets a line for each picture that is gone."""
        self.files = [part for part in message.content if isinstance(part, FilePart)]
        self.pictures = []
        for part in message.content:
            if isinstance(part, ImagePart):
                try:
                    self.pictures.append(restaged(part, self._sent.get(part)))
                except MlxchatError as error:
                    tell(f"a picture of this message is gone, and left out: {error.message}")
        return "\n".join(part.text for part in message.content if isinstance(part, TextPart))


def _path_of(source: str) -> str:
    """The path or URL in what was typed: one dragged into the terminal comes in quotes, or with backslashes."""
    if is_url(source) or _exists(source):
        return source
    try:
        words = shlex.split(source)
    except ValueError:
        return source
    return words[0] if len(words) == 1 else source


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
