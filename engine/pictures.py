"""Pictures as the models get them: plain RGB bytes, whatever file they came in.

Only raster formats are decoded, and none whose library writes to stderr by itself. A picture's size is known, and
checked, before a pixel of it is decoded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from ..errors import DataError, InputError
from .file_errors import unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 50_000_000
"""As RGB this is 150 MB; models scale anything over a few million pixels down."""

MOST_BYTES = 100_000_000
"""The largest file that is read."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "AVIF", "PPM")
_KINDS = "PNG, JPEG, WebP, GIF, BMP, AVIF and PPM are understood"
_WHITE = (255, 255, 255, 255)


@dataclass(frozen=True)
class Picture:
    """One decoded picture.

    pixels    RGB, 8 bits each, row by row from the top left: 3 · width · height bytes
    digest    sha256 in hex over width, height (little-endian uint32) and pixels: equal pictures, equal digests
    """

    pixels: bytes
    width: int
    height: int
    digest: str


def open_picture(source: str, *, max_pixels: int = MOST_PIXELS) -> Picture:
    """The picture behind a local path, a file: URL or a data: URL, upright, on white, its first frame.

    Raises InputError for what can't be read (nothing is fetched from the network) and DataError for what is no
    picture, is broken, or has more than `max_pixels`.
    """
    if source.startswith("data:"):
        return decode_picture(data_url_bytes(source), "the data: URL", max_pixels=max_pixels)
    return decode_picture(file_bytes(source), source, max_pixels=max_pixels)


def decode_picture(data: bytes, name: str, *, max_pixels: int = MOST_PIXELS) -> Picture:
    """The picture in the bytes of a file; `name` stands in error lines. Raises DataError."""
    from PIL import Image, UnidentifiedImageError

    _silence_pillow()
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image.width, image.height, name, max_pixels)
            image.load()
            shown = _as_rgb(_upright(image))
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not a picture", _KINDS) from error
    except Image.DecompressionBombError as error:
        raise _too_large(name, max_pixels) from error
    except Exception as error:  # a broken file makes Pillow raise nearly anything
        raise DataError(f"{name} is a broken picture: {error}", "save it again, for example as PNG") from error
    pixels = shown.tobytes()
    digest = hashlib.sha256(struct.pack("<II", *shown.size) + pixels).hexdigest()
    return Picture(pixels, shown.width, shown.height, digest)


def data_url_bytes(source: str) -> bytes:
    """The bytes in a data: URL. Raises DataError."""
    head, comma, body = source.partition(",")
    hint = "it reads data:image/png;base64,… or is percent-encoded"
    if not comma:
        raise DataError("the data: URL has no data", hint)
    raw = unquote_to_bytes(body)
    if not head.endswith(";base64"):
        return raw
    try:
        return base64.b64decode(b"".join(raw.split()), validate=True)
    except binascii.Error as error:
        raise DataError(f"the data: URL is not base64: {error}", hint) from error


def data_url(data: bytes) -> str:
    """The bytes of a picture's file as a data: URL of its type. Raises DataError if they are none."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            kind = Image.MIME.get(image.format or "", "application/octet-stream")
    except UnidentifiedImageError as error:
        raise DataError("the data is not a picture", _KINDS) from error
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def file_bytes(source: str, *, name: str | None = None, pipes: bool = False) -> bytes:
    """The bytes of a file, by its path or file: URL; `name` stands in error lines.

    pipes    take a named pipe too, which somebody may have to fill; never a device: it might never end
    Raises InputError, and DataError if it is larger than MOST_BYTES.
    """
    name = name or source
    parts = urlsplit(source) if "://" in source else None
    if parts is not None and parts.scheme != "file":
        raise InputError(f"{name} is not on this machine", "fetch it, or give it with -i, which does")
    try:
        path = Path(source if parts is None else unquote(parts.path))
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or (pipes and stat.S_ISFIFO(kind))):
            raise InputError(f"{name} is {'a folder' if stat.S_ISDIR(kind) else 'no file'}", "name a picture")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(name, error) from error
    if len(data) > MOST_BYTES:
        raise DataError(f"{name} is larger than {MOST_BYTES // 1_000_000} MB", "save a smaller copy")
    return data


def _check_size(width: int, height: int, name: str, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise _too_large(name, max_pixels, f" ({width:,} × {height:,})")


def _too_large(name: str, max_pixels: int, size: str = "") -> DataError:
    return DataError(f"{name} has more than {max_pixels:,} pixels{size}", "save a smaller copy")


def _upright(image: Image) -> Image:
    """The picture turned as its EXIF data says; as it is if that is broken."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _as_rgb(image: Image) -> Image:
    """Any mode as RGB, what is transparent on white."""
    from PIL import Image as Images

    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        above = image.convert("RGBA")
        return Images.alpha_composite(Images.new("RGBA", above.size, _WHITE), above).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image) -> Image:
    """A grayscale picture of 16 bits as one of 8: Pillow's own conversion clips at 255 instead of scaling."""
    import numpy
    from PIL import Image as Images

    values = numpy.asarray(image).astype(numpy.float64) / 257
    return Images.fromarray(numpy.clip(values.round(), 0, 255).astype(numpy.uint8))


def _silence_pillow() -> None:
    """Keep its warnings from stderr: the size is checked here, more strictly, and damage is no one's business."""
    import warnings

    warnings.filterwarnings("ignore", module=r"PIL\..*")
