"""A rendered request: its ids, its pictures, and the positions in it that matter to later prompts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..cache.keys import Ids, as_elements
from .image_spans import ImageSpan
from .marks import Mark, MarkKind


@dataclass(frozen=True, eq=False)
class Prompt:
    """A rendered request.

    ids             int32 [tokens]
    pictures        where its pictures stand, in order
    text            what the template wrote
    marks           sorted, each with 0 < position <= tokens; a function of the request alone
    scaffold_text   what the generation prompt put behind the header of the model's turn; scaffold_ids its ids
    reasoning_open  whether the model's first token is reasoning
    """

    ids: NDArray[np.int32]
    text: str
    marks: tuple[Mark, ...]
    scaffold_text: str
    scaffold_ids: tuple[int, ...]
    reasoning_open: bool
    pictures: tuple[ImageSpan, ...] = ()

    @cached_property
    def elements(self) -> Ids:
        """What is compared of it: ids, but pictures by what they show. int32 [tokens]."""
        return as_elements(self.ids, self.pictures)

    def positions(self, *kinds: MarkKind) -> list[int]:
        """The positions of marks of these kinds (all if none is named), ascending, each once."""
        return sorted({mark.position for mark in self.marks if not kinds or mark.kind in kinds})

    def position_of(self, kind: MarkKind) -> int | None:
        """The last position of this kind, None if there is none."""
        return max((mark.position for mark in self.marks if mark.kind == kind), default=None)
