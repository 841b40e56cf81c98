"""The Hugging Face hub, reached only for a download that was asked for. Its library stays out of start-up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DownloadError, ModelNotFound
from .fetch import size_of_folder
from .folders import huggingface_dir

PATTERNS = ["*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]
_POLL_SECONDS = 0.5


def size_of(repository: str) -> int:
    """Bytes that `snapshot` would still fetch. Asks the hub."""
    import huggingface_hub

    with _named_errors(repository):
        files = huggingface_hub.snapshot_download(
            repository, allow_patterns=PATTERNS, cache_dir=huggingface_dir(), dry_run=True
        )
        return sum(int(file.file_size or 0) for file in files if file.will_download)


def snapshot(repository: str, size: int, progress: Callable[[str, int, int], None]) -> Path:
    """Fetch the files a model needs (never Python files) into the Hugging Face cache; the snapshot's folder.

    size  what `size_of` said, for the progress. An interrupted fetch is continued by the next one; until then the model
    counts as incomplete.
    """
    import huggingface_hub

    huggingface_hub.utils.disable_progress_bars()
    cache = huggingface_dir()
    blobs = cache / ("models--" + repository.replace("/", "--")) / "blobs"
    before = size_of_folder(blobs)

    def report(held: int) -> None:
        progress(f"downloading {repository}", max(0, min(held - before, size)), size)

    with _watched(blobs, report), _named_errors(repository):
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=PATTERNS, cache_dir=cache))


@contextmanager
def _watched(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Report the folder's size twice a second from a thread of its own, and once more at the end."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(_POLL_SECONDS):
            report(size_of_folder(folder))

    thread = threading.Thread(target=watch, name="mlxchat-download", daemon=True)
    thread.start()
    try:
        yield
        report(size_of_folder(folder))
    finally:
        stop.set()
        thread.join()


@contextmanager
def _named_errors(repository: str) -> Iterator[None]:
    """Turn the hub library's many exceptions, and its transport's, into ours, one line each."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise DownloadError(
            f"{repository} is gated: its owner wants its terms accepted first",
            f"accept them at https://huggingface.co/{repository}, then run: hf auth login",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFound(f"the Hugging Face hub has no model {repository}", "check the name") from error
    except (OSError, ValueError, RuntimeError) as error:
        raise DownloadError(
            f"{repository} could not be fetched: {_first_line(error)}", "check the network, then run it again"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
