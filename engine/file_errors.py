"""What is said of a file that can't be read or written: the same words wherever it is met."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError, OutputError


def unreadable(name: str | Path, error: OSError | ValueError) -> InputError:
    """The error for a file that a person named, as it was named. A name that no file can have is a ValueError."""
    return InputError(f"can't read {name}: {_cause(error)}", "check the name and its permissions")


def unwritable(
    name: str | Path, error: OSError, mend: str = "name another place", kind: type[OutputError] = OutputError
) -> OutputError:
    """The error, a `kind`, for a file that can't be made or added to; `mend` is what else would help.

    A missing folder is named: the system says "No such file" of the file that was to be made.
    """
    folder = Path(name).expanduser().parent
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return kind(f"can't write {name}: there is no folder {folder}", f"make that folder first, or {mend}")
    if isinstance(error, NotADirectoryError):
        return kind(f"can't write {name}: {folder} is no folder", mend)
    return kind(f"can't write {name}: {_cause(error)}", mend)


def _cause(error: OSError | ValueError) -> object:
    return getattr(error, "strerror", None) or error
