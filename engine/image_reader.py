"""From a message's picture to the ids of its span, by the model's own processor. Engine thread only."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, ModelUnsupported, TemplateError
from .encoding import ControlTokens
from .image_spans import PreparedImage
from .messages import ImagePart
from .pictures import Picture, open_picture
from .rendering import ChatTemplate, Plain

if TYPE_CHECKING:
    import mlx.core as mx

_WORD: Plain = {"type": "text", "text": "x"}
_REMEMBERED = 4096  # pictures whose layout is kept; a layout has no pixels
_TEXT_FIELDS = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")


class ImageReader:
    """Lays pictures out for one model.

    processor    mlx-vlm's, as loaded from the model's folder
    tokenizer    mlx-lm's TokenizerWrapper of the same folder
    placeholder  the id that features take the place of
    """

    def __init__(self, processor: Any, tokenizer: Any, placeholder: int) -> None:
        self._processor = processor
        self._tokenizer = tokenizer
        # a span reaches from the first to the last control token
        self._control = ControlTokens(tokenizer.added_tokens_decoder, [tokenizer.decode([placeholder])]).id_set
        self._placeholder = placeholder
        self._marker: str | None = None
        self._layouts: OrderedDict[bytes, PreparedImage] = OrderedDict()
        self._arrays: dict[bytes, dict[str, mx.array]] = {}
        self._seen: dict[int, tuple[weakref.ref[ImagePart], bytes]] = {}
        self._sources: OrderedDict[Any, bytes] = OrderedDict()

    @property
    def marker(self) -> str:
        """The text by which the template marks a picture. Raises ModelUnsupported if it shows none."""
        if self._marker is None:
            raise ModelUnsupported("the template has no place for pictures", "choose another with --template NAME|FILE")
        return self._marker

    @property
    def works(self) -> bool:
        """Whether pictures can be shown."""
        return self._marker is not None

    def learn_marker(self, template: ChatTemplate) -> None:
        """Ask the template how it marks a picture."""
        try:
            shown = template.render([{"role": "user", "content": [{"type": "image"}, _WORD]}], generation=False)
        except TemplateError:
            shown = ""
        names = ("boi_token", "image_token")  # where both are there, the second is what the first is expanded to
        texts = (getattr(self._processor, name, None) for name in names)
        self._marker = next((text for text in texts if isinstance(text, str) and text and text in shown), None)

    def prepare(self, part: ImagePart) -> PreparedImage:
        """How the picture is laid out where the template wrote the marker.

        The picture is bound to `part` itself when it is first seen: a file that changes later is another message's
        picture. Raises InputError or DataError if it can't be read, ModelUnsupported if the processor can't take it.
        """
        known = self._seen.get(id(part))
        bound = known is not None and known[0]() is part
        digest = known[1] if known is not None and bound else self._sources.get(_source_key(part.source))
        layout = self._layouts.get(digest) if digest is not None else None
        if layout is None:
            layout = self._lay_out(open_picture(part.source))
        if not bound:
            self._seen[id(part)] = weakref.ref(part), layout.digest
            weakref.finalize(part, self._seen.pop, id(part), None)
            _remember(self._sources, _source_key(part.source), layout.digest)
        _remember(self._layouts, layout.digest, layout)
        return layout

    def arrays(self, digest: bytes, source: str) -> dict[str, mx.array]:
        """What the vision tower gets of a picture: pixel values and, by family, grids and masks. Not kept.

        Raises InputError if the file has changed since its message was sent, or what `open_picture` raises.
        """
        found = self._arrays.pop(digest, None)
        if found is None:
            picture = open_picture(source)
            if bytes.fromhex(picture.digest) != digest:
                raise InputError(f"{source[:200]} has changed since its message was sent", "attach it again")
            self._lay_out(picture)
            found = self._arrays.pop(digest)
        return found

    def forget_arrays(self) -> None:
        """Let go of pixels that turned out not to be needed."""
        self._arrays.clear()

    def _lay_out(self, picture: Picture) -> PreparedImage:
        """Run the processor on one picture alone: what it makes of a picture never depends on its neighbours."""
        from PIL import Image

        shown = Image.frombytes("RGB", (picture.width, picture.height), picture.pixels)
        digest = bytes.fromhex(picture.digest)
        try:
            with _hushed():
                fields = dict(self._processor(text=[self.marker], images=[shown], add_special_tokens=False))
        except Exception as error:  # processors raise nearly anything for sizes they can't take
            cause = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelUnsupported(
                f"this model's processor can't take the picture ({picture.width} × {picture.height}): {cause}",
                "scale the picture, or use another model",
            ) from error
        ids = [int(one) for one in np.array(fields["input_ids"]).reshape(-1)]
        self._arrays[digest] = {k: _array(v) for k, v in fields.items() if k not in _TEXT_FIELDS and v is not None}
        return self._layout(digest, ids, self._grid(fields))

    def _layout(self, digest: bytes, ids: list[int], grid: tuple[int, int, int] | None) -> PreparedImage:
        at = [index for index, one in enumerate(ids) if one in self._control]
        if self._placeholder not in ids or not at:
            raise ModelUnsupported("this model's processor gives pictures no place in the prompt", "use another model")
        low, high = at[0], at[-1] + 1
        return PreparedImage(
            digest=digest,
            lead=self._decode(ids[:low]),
            ids=tuple(ids[low:high]),
            tail=self._decode(ids[high:]),
            first=self._decode(ids[low : low + 1]),
            last=self._decode(ids[high - 1 : high]),
            placeholder=self._placeholder,
            grid=grid,
        )

    def _grid(self, fields: dict[str, Any]) -> tuple[int, int, int] | None:
        if fields.get("image_grid_thw") is None:
            return None
        time, height, width = (int(one) for one in np.array(fields["image_grid_thw"]).reshape(-1))
        merge = int(self._processor.image_processor.merge_size)
        return time, height // merge, width // merge

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text


def _source_key(source: str) -> tuple[str | bytes, int, int]:
    """A file by name, time and size; what has no file, by what it says (a data: URL is as long as its picture)."""
    if not source.startswith("data:"):
        with contextlib.suppress(OSError, ValueError):
            stat = Path(source).stat()
            return str(Path(source).absolute()), stat.st_mtime_ns, stat.st_size
    return hashlib.sha256(source.encode()).digest(), 0, 0


def _remember(memory: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _array(value: Any) -> mx.array:
    import mlx.core as mx

    return value if isinstance(value, mx.array) else mx.array(np.array(value))


@contextlib.contextmanager
def _hushed() -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
