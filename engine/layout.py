"""A rendered prompt cut into the pieces that are encoded apart, and the way from its characters to token positions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .encoding import Encoder, Ids
from .image_spans import PreparedImage
from .protect import Protector

PieceKind = Literal["text", "control", "plain", "spliced", "picture"]


@dataclass(frozen=True)
class Splice:
    """Ids that were fed, to stand for the characters [start, end) of the rendered text."""

    start: int
    end: int
    ids: Ids


@dataclass(frozen=True)
class Piece:
    """Characters [start, end) of the rendered text and their ids; `first` is the position of the first one.

    `before` is what the text was encoded behind (see Encoder.between).
    """

    kind: PieceKind
    start: int
    end: int
    ids: Ids
    first: int
    before: str | None = None


class Layout:
    """The pieces of one rendered text, in order, without gaps."""

    def __init__(
        self,
        encoder: Encoder,
        protector: Protector,
        text: str,
        splices: Sequence[Splice] = (),
        edges: Iterable[int] = (),
    ) -> None:
        self.text = text
        self._encoder = encoder
        self._protector = protector
        self._shown = dict(protector.picture_hits(text))
        self.pieces: list[Piece] = []
        self._cut(_marks(encoder, protector, text, splices), sorted(set(edges)))
        self._ends = [piece.end for piece in self.pieces]
        self.length = self.pieces[-1].first + len(self.pieces[-1].ids) if self.pieces else 0

    def ids(self) -> list[int]:
        """All ids in order."""
        return [one for piece in self.pieces for one in piece.ids]

    @property
    def picture_offsets(self) -> list[int]:
        """Where pictures stand in the text, ascending."""
        return list(self._shown)

    def pictures(self) -> list[tuple[int, int, PreparedImage]]:
        """(start, end, picture) of the prompt's pictures in order, as token positions."""
        shown = [piece for piece in self.pieces if piece.kind == "picture"]
        return [(piece.first, piece.first + len(piece.ids), self._shown[piece.start]) for piece in shown]

    def position(self, offset: int) -> int:
        """The number of leading tokens that lie wholly before the character at `offset`.

        Only those that are the same when the text ends there: one or two fewer than could be, inside a word.
        """
        at = bisect_left(self._ends, offset)
        if at == len(self.pieces):
            return self.length
        piece = self.pieces[at]
        if offset == piece.end:
            return piece.first + len(piece.ids)
        if piece.kind != "text":
            return piece.first
        shorter = self._encode(piece.before, piece.start, offset, "")
        return piece.first + common_length(piece.ids, shorter)

    def shared_position(self, offset: int, other: str, start: int = 0) -> int:
        """The number of leading tokens shared with a prompt whose text is equal to this one's to `offset`.

        other: that prompt's text from `start` on, the end of a control token at or before `offset`. Text before
        `offset` may be tokenized otherwise when other text follows; those tokens are not shared.
        """
        at = bisect_left(self._ends, offset)
        if at == len(self.pieces):
            return self.length
        piece = self.pieces[at]
        if piece.kind != "text":
            return piece.first + (len(piece.ids) if offset == piece.end else 0)
        begin = piece.start - start
        end, after = _text_end(self._encoder, self._protector, other, begin)
        text = self._protector.restore(other[begin:end])
        shared = common_length(piece.ids, self._encoder.between(piece.before, text, after))
        return min(piece.first + shared, self.position(offset))

    def _cut(self, marks: list[tuple[int, int, PieceKind, Ids]], edges: list[int]) -> None:
        at, first = 0, 0
        left: str | None = ""
        for start, end, kind, ids in [*marks, (len(self.text), len(self.text), "control", ())]:
            inner = [edge for edge in edges if at < edge < start]
            for stop in (*inner, start):
                if stop > at:
                    after = self.text[start:end] if kind == "control" and stop == start else ""
                    if kind == "picture" and stop == start:
                        after = self._shown[start].first
                    found = self._encode(left, at, stop, after)
                    self.pieces.append(Piece("text", at, stop, found, first, left))
                    first += len(found)
                    at, left = stop, None
            if end > start:
                self.pieces.append(Piece(kind, start, end, ids, first))
                first += len(ids)
                at = end
                left = self.text[start:end] if kind == "control" else None
                if kind == "picture":
                    left = self._shown[start].last

    def _encode(self, before: str | None, start: int, end: int, after: str) -> Ids:
        return self._encoder.between(before, self._protector.restore(self.text[start:end]), after)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids are equal."""
    for at, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return at
    return min(len(a), len(b))


def common_text(a: str, b: str) -> int:
    """How many leading characters are equal."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _marks(
    encoder: Encoder, protector: Protector, text: str, splices: Sequence[Splice]
) -> list[tuple[int, int, PieceKind, Ids]]:
    """Everything that isn't ordinary text: control tokens, protected strings, splices, in order."""
    ids = encoder.control.separators
    marks: list[tuple[int, int, PieceKind, Ids]] = [(s.start, s.end, "spliced", s.ids) for s in splices]
    marks += [(a, b, "control", (ids[text[a:b]],)) for a, b in encoder.separators.find(text)]
    marks += [(a, b, "plain", encoder.plain(protector.restore(text[a:b]))) for a, b in protector.control_hits(text)]
    marks += [(at, at + 1, "picture", picture.ids) for at, picture in protector.picture_hits(text)]
    # a splice wins over what the template wrote in the same place
    marks.sort(key=lambda mark: (mark[0], mark[2] != "spliced"))
    kept, at = [], 0
    for mark in marks:
        if mark[0] >= at:
            kept.append(mark)
            at = mark[1]
    return kept


def _text_end(encoder: Encoder, protector: Protector, text: str, start: int) -> tuple[int, str]:
    """Where the ordinary text that begins at `start` ends, and the control token there ("" if it is something else)."""
    control = next(encoder.separators.find(text, start), (len(text), len(text)))
    plain = next(protector.control_hits(text, start), control)
    picture = next(protector.picture_hits(text, start), None)
    if picture is not None and picture[0] < min(plain[0], control[0]):
        return picture[0], picture[1].first
    return (plain[0], "") if plain[0] < control[0] else (control[0], text[control[0] : control[1]])
