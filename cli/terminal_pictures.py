"""A picture on the terminal, where its environment variables say that it shows some.

The terminal is never asked: its answer would land among the keys that somebody types.
MLXCHAT_PICTURES=kitty|iterm2|sixel|off says it for terminals that are called something else.
"""

from __future__ import annotations

import base64
import fcntl
import io
import os
import struct
import termios
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TextIO, get_args

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..engine.pictures import Picture

Protocol = Literal["kitty", "iterm2", "sixel"]

VARIABLE = "MLXCHAT_PICTURES"
COLUMNS, ROWS = 40, 12
"""The largest that a picture gets."""

_CELL = (10, 20)
_KITTY_CHUNK = 4096
_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
_ITERM2_PROGRAMS = ("iTerm.app", "WezTerm", "mintty")
_SIXEL_TERMS = ("foot", "mlterm", "contour", "yaft")


def protocol(environment: Mapping[str, str]) -> Protocol | None:
    """How the terminal of this environment shows pictures; None where that isn't known, and inside tmux or screen."""
    wish, term = environment.get(VARIABLE, ""), environment.get("TERM", "")
    for known in get_args(Protocol):
        if wish == known:
            return known  # type: ignore[no-any-return]  # get_args gives the literals as objects
    if wish or term == "dumb" or environment.get("TMUX") or term.startswith(("tmux", "screen")):
        return None
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("KITTY_WINDOW_ID") or term in _KITTY_TERMS or program == "ghostty":
        return "kitty"
    if program in _ITERM2_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return "sixel" if term.startswith(_SIXEL_TERMS) or "sixel" in term else None


def drawing(picture: Picture, how: Protocol, cell: tuple[int, int] = _CELL) -> str:
    """What to write to the terminal so that it shows the picture, small, and goes on below it.

    cell    width and height of a character in pixels
    """
    image = _thumbnail(picture, COLUMNS * cell[0], ROWS * cell[1])
    draw = {"kitty": _kitty, "iterm2": _iterm2, "sixel": _sixel}[how]
    return f"{draw(image)}\n"


def cell_size(stream: TextIO) -> tuple[int, int]:
    """Width and height of a character in pixels, as far as the terminal's driver knows."""
    try:
        packed = fcntl.ioctl(stream.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, width, height = struct.unpack("HHHH", packed)
    except (OSError, ValueError):
        return _CELL
    return (width // columns, height // rows) if rows and columns and width >= columns and height >= rows else _CELL


def show(picture: Picture, stream: TextIO) -> None:
    """Draw the picture on the terminal that `stream` is, if that is known to show pictures."""
    how = protocol(os.environ)
    if how is not None:
        stream.write(drawing(picture, how, cell_size(stream)))
        stream.flush()


def _thumbnail(picture: Picture, width: int, height: int) -> Image:
    from PIL import Image

    image = Image.frombytes("RGB", (picture.width, picture.height), picture.pixels)
    image.thumbnail((width, height))
    return image


def _png(image: Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _kitty(image: Image) -> str:
    """One graphics command in chunks; q=2: the terminal is to answer nothing."""
    body = base64.b64encode(_png(image)).decode("ascii")
    chunks = [body[at : at + _KITTY_CHUNK] for at in range(0, len(body), _KITTY_CHUNK)]
    commands = []
    for number, chunk in enumerate(chunks):
        head = "a=T,f=100,q=2," if number == 0 else ""
        commands.append(f"\x1b_G{head}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(commands)


def _iterm2(image: Image) -> str:
    data = _png(image)
    body = base64.b64encode(data).decode("ascii")
    return f"\x1b]1337;File=inline=1;size={len(data)};width={image.width}px;height={image.height}px:{body}\x07"


def _sixel(image: Image) -> str:
    from textual_image._sixel import image_to_sixels  # the public module asks the terminal while it is imported

    return image_to_sixels(image)
