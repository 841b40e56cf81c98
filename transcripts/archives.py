"""Inspect AI's .eval archives as records: the header once, then a sample each, never all of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import DataError
from .formats.base import Record
from .json_lines import NotJson, load
from .model import Skipped
from .unpacking import BROKEN, MOST_UNPACKED, TooMuch, ZipFile, member

LARGEST_SAMPLE = 1 << 30
MOST_MEMBERS = 200_000


@dataclass
class ZipRecords:
    """The samples of an archive; a record's line is the sample's 1-based place."""

    archive: ZipFile
    name: str
    skipped: list[Skipped] = field(default_factory=list)
    array: bool = False

    def __iter__(self) -> Iterator[Record]:
        names = self.archive.namelist()
        samples = sorted(name for name in names if name.startswith("samples/") and name.endswith(".json"))
        header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        if len(names) > MOST_MEMBERS:
            raise DataError(f"{self.name} has more than {MOST_MEMBERS:,} members", "take a part of it")
        if header is None or not samples:
            raise DataError(f"{self.name} is a zip archive, but no Inspect AI log", "unpack it and name a file in it")
        about = self._load(header, 0) or {}
        left = MOST_UNPACKED
        for at, name in enumerate(samples, 1):
            left -= self.archive.getinfo(name).file_size
            if left < 0:
                raise TooMuch(f"{self.name} unpacks to more than {MOST_UNPACKED >> 30} GB", "take a part of it")
            sample = self._load(name, at)
            if sample is not None:
                yield Record(at, {"eval": about.get("eval", {}), "sample": sample})

    def _load(self, name: str, at: int) -> dict[str, object] | None:
        """A member that is a JSON object; None, counted as skipped, if it isn't."""
        try:
            value = load(member(self.archive, name, LARGEST_SAMPLE))
        except NotJson as error:
            self.skipped.append(Skipped(at, f"{name}: {error.why}"))
            return None
        except BROKEN as error:
            self.skipped.append(Skipped(at, f"{name} is broken ({error or type(error).__name__})"))
            return None
        if not isinstance(value, dict):
            self.skipped.append(Skipped(at, f"{name} is no JSON object"))
            return None
        return value
