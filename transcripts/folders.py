"""Folders of transcripts: a Claude Code project, Codex date folders; sub-agents' files are joined to their parents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..engine.file_errors import unreadable
from ..errors import DataError, InputError
from .formats.base import Parsed
from .model import Conversation, Skipped, Transcript

SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".json.zst", ".traj", ".eval")
MOST_FILES = 20_000


def read_folder(path: Path, read_one: Callable[[Path], tuple[Transcript, Parsed]]) -> Transcript:
    """All transcripts below `path`, by name; a file that is none is counted. Raises InputError, DataError."""
    found: list[tuple[str, Transcript]] = []
    skipped: list[Skipped] = []
    for file in _files(path):
        name = file.relative_to(path).as_posix()
        try:
            transcript, parsed = read_one(file)
        except (DataError, InputError) as error:
            skipped.append(Skipped(0, error.message, name))
            continue
        skipped += [replace(line, file=name) for line in transcript.skipped]
        if parsed.conversations:
            found.append((name, transcript))
    if not found:
        why = f"{skipped[0].file}: {skipped[0].why}" if skipped else f"no files that end in {', '.join(SUFFIXES)}"
        raise DataError(f"no transcript in {path}: {why}", "name a file, or --format")
    formats = sorted({transcript.format for _, transcript in found})
    missing = dict.fromkeys(phrase for _, transcript in found for phrase in transcript.missing)
    return Transcript("+".join(formats), str(path), _joined(found), tuple(skipped), tuple(missing))


def _files(path: Path) -> list[Path]:
    try:
        files = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
    except OSError as error:
        raise unreadable(path, error) from error
    if len(files) > MOST_FILES:
        raise DataError(f"{path} holds more than {MOST_FILES:,} transcripts", "name one of its folders")
    return files


def _joined(found: list[tuple[str, Transcript]]) -> tuple[Conversation, ...]:
    """All conversations with unique ids, sub-agents and side chains right after their parents."""
    all_of_them: list[Conversation] = []
    seen: set[str] = set()
    for name, transcript in found:
        for conversation in transcript.conversations:
            unique = conversation.id
            if unique in seen:
                unique = f"{conversation.id} ({name})"
            seen.add(unique)
            all_of_them.append(replace(conversation, id=unique, file=name))
    children: dict[str, list[Conversation]] = {}
    mains: list[Conversation] = []
    for conversation in all_of_them:
        parent = conversation.parent
        if parent is None or parent not in seen or parent == conversation.id:
            mains.append(conversation)
        else:
            children.setdefault(parent, []).append(conversation)
    out: list[Conversation] = []
    waiting = mains[::-1]
    while waiting:
        out.append(waiting.pop())
        waiting += children.pop(out[-1].id, [])[::-1]
    return (*out, *(conversation for circle in children.values() for conversation in circle))
