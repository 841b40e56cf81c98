"""The clipboard of this machine, or, over SSH, that of the terminal."""

from __future__ import annotations

import base64
import os
from io import BytesIO
from pathlib import Path
from typing import Any

from ..errors import InputError, OutputError
from .streams import Streams, is_terminal

_LONGEST_SEQUENCE = 100_000  # bytes of base64; terminals drop longer ones without a word


def copy(text: str, streams: Streams) -> str:
    """Put `text` there; where that is, in words. Raises OutputError where there is no clipboard."""
    far = any(os.environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY"))
    if not far:
        try:
            _library().copy(text)
        except Exception:  # one kind of error per platform: the terminal may still have a clipboard
            pass
        else:
            return "the clipboard"
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
    if not (streams.live and is_terminal(streams.stderr)):
        raise OutputError("there is no clipboard here", "pipe the answer elsewhere, or /export it")
    if len(encoded) > _LONGEST_SEQUENCE:
        raise OutputError("the answer is too long for the terminal's clipboard", "/export FILE writes it to a file")
    streams.control(f"\x1b]52;c;{encoded}\x07")
    return "the terminal’s clipboard, if it allows that"


def paste_text() -> str:
    """The text that is there. Raises InputError where there is no clipboard."""
    try:
        text = _library().paste()
    except Exception as error:  # one kind of error per platform
        raise InputError(
            "this machine has no clipboard that can be read", "paste with the terminal’s own key"
        ) from error
    return str(text or "").replace("\r\n", "\n")


def paste_picture() -> bytes | None:
    """The picture that is there, as the bytes of a file; None if there is none or the platform gives none."""
    from PIL import Image, ImageGrab

    try:
        found: Any = ImageGrab.grabclipboard()
        if isinstance(found, Image.Image):
            file = BytesIO()
            found.save(file, "PNG")
            return file.getvalue()
        # macOS and Windows give the names of files that were copied
        return Path(found[0]).read_bytes() if isinstance(found, list) and found else None
    except Exception:  # no tool for it on this machine, or nothing in it that is a picture
        return None


def _library() -> Any:
    import pyperclip

    return pyperclip
