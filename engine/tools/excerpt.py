"""The beginning and the end of an output of any length, in memory that doesn't grow with it."""

from __future__ import annotations

from ..sanitize import sanitize

HEAD_BYTES = TAIL_BYTES = 8 << 10
"""About four thousand tokens in all: a tool that prints a whole log shall not fill the context."""


class Excerpt:
    """Takes bytes as they come; keeps the first `head` and the last `tail` of them."""

    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._head_limit, self._tail_limit = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._length = 0

    def add(self, data: bytes) -> None:
        """The next bytes."""
        self._length += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_limit :]
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        """What is kept, as text that is safe to show; a line says how much was left out between the two ends."""
        tail = bytes(self._tail[-self._tail_limit :])
        left_out = self._length - len(self._head) - len(tail)
        if not left_out:
            return sanitize((bytes(self._head) + tail).decode("utf-8", "replace"))
        # a character that was cut in two belongs to neither end
        before = bytes(self._head).decode("utf-8", "ignore")
        after = tail.lstrip(bytes(range(0x80, 0xC0))).decode("utf-8", "replace")
        return f"{sanitize(before)}\n[… {left_out:,} bytes left out …]\n{sanitize(after)}"


def excerpt_of(text: str) -> str:
    """A whole text, cut and cleaned the same way."""
    excerpt = Excerpt()
    excerpt.add(text.encode("utf-8", "replace"))
    return excerpt.text()
