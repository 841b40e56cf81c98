"""Reading transcripts: a file, or a folder of files that belong together, of any format known here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from . import folders
from .archives import ZipRecords
from .formats.base import Format, Head, Parsed, Record, Source
from .formats.registry import by_name, names, recognise
from .json_lines import JsonRecords
from .model import Skipped, Transcript
from .unpacking import BROKEN, ZipFile, opened

_HEAD_RECORDS = 60


def read(path: Path, format: str | None = None) -> Transcript:  # noqa: A002 - the option's name
    """The transcript in `path`, a file or a folder.

    `format` overrides detection. Raises UsageError for an unknown format, InputError for what can't be opened, and
    DataError, naming the line, where nothing in it can be used.
    """
    chosen = by_name(format) if format else None
    if path.is_dir():
        return folders.read_folder(path, lambda file: read_file(file, chosen))
    transcript, parsed = read_file(path, chosen)
    if not parsed.conversations:
        raise _nothing(path, transcript)
    return transcript


def read_file(path: Path, chosen: Format | None) -> tuple[Transcript, Parsed]:
    """One file. Raises InputError, and DataError for a format that isn't known."""
    with opened(path) as stream:
        records = ZipRecords(stream, path.name) if isinstance(stream, ZipFile) else JsonRecords(stream, path.name)
        whole = _unbroken(records, path)
        first = list(itertools.islice(whole, _HEAD_RECORDS))
        head = Head(tuple(record.value for record in first), records.array)
        found = chosen or recognise(head)
        if found is None:
            raise _unknown(path, first, records.skipped)
        source = Source(path, itertools.chain(first, whole), records.array, records.skipped)
        parsed = found.parse(source)
    skipped = tuple(sorted(source.skipped, key=lambda line: line.line))
    return Transcript(found.name, str(path), parsed.conversations, skipped, parsed.missing), parsed


def _unbroken(records: JsonRecords | ZipRecords, path: Path) -> Iterator[Record]:
    """The records up to where a compressed file breaks off; that it does is counted."""
    last = 0
    try:
        for record in records:
            last = record.line
            yield record
    except BROKEN as error:
        records.skipped.append(Skipped(last + 1, f"the file is broken from here on ({error or type(error).__name__})"))
    except OSError as error:
        records.skipped.append(Skipped(last + 1, f"{path.name} can't be read from here on ({error})"))


def _unknown(path: Path, first: list[Record], skipped: list[Skipped]) -> DataError:
    if not first and skipped:
        worst = skipped[0]
        return DataError(f"{path.name}, line {worst.line}: {worst.why}", "a transcript is JSON or JSON lines")
    if not first:
        return DataError(f"{path.name}, line 1: the file is empty", "a transcript is JSON or JSON lines")
    fields = ", ".join(list(first[0].value)[:6])
    return DataError(
        f"{path.name}, line {first[0].line}: no transcript format known here (fields: {fields[:120]})",
        f"--format names one: {', '.join(names())}",
    )


def _nothing(path: Path, transcript: Transcript) -> DataError:
    worst = transcript.skipped[0] if transcript.skipped else Skipped(1, "no messages")
    return DataError(
        f"{path.name}, line {worst.line}: {worst.why}; nothing else in it can be read as {transcript.format}",
        f"--format names another one: {', '.join(names())}",
    )
