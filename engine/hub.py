"""The Hugging Face hub, reached only after the user agreed to a download. Imported modules stay out of start-up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DownloadError, ModelNotFound, ModelRefused
from .fetch import size_of_folder
from .folders import huggingface_dir

PATTERNS = ["*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]
_POLL_SECONDS = 0.5


def size_of(repository: str) -> int:
    """Bytes that `snapshot` would fetch. Asks the hub."""
    from fnmatch import fnmatch

    import huggingface_hub

    with _named_errors(repository):
        info = huggingface_hub.HfApi().model_info(repository, files_metadata=True)
    files = [f for f in info.siblings or [] if any(fnmatch(f.rfilename, p) for p in PATTERNS)]
    return sum(f.size or 0 for f in files)


def snapshot(repository: str, size: int, progress: Callable[[str, int, int], None]) -> Path:
    """Fetch the files a model needs (never Python files) into the Hugging Face cache; the snapshot's folder.

    An interrupted fetch is continued by the next one; until then the model counts as incomplete.
    """
    import huggingface_hub

    huggingface_hub.utils.disable_progress_bars()
    cache = huggingface_dir()
    blobs = cache / ("models--" + repository.replace("/", "--")) / "blobs"

    def report(done: int) -> None:
        progress(f"downloading {repository}", min(done, size), size)

    with _watched(blobs, report), _named_errors(repository):
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=PATTERNS, cache_dir=cache))


@contextmanager
def _watched(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Report the folder's size twice a second from a thread of its own."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(_POLL_SECONDS):
            report(size_of_folder(folder))

    thread = threading.Thread(target=watch, name="mlxchat-download", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _named_errors(repository: str) -> Iterator[None]:
    """Turn the hub library's many exceptions into ours, one line each."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelRefused(
            f"{repository} is gated: its owner wants its terms accepted first",
            f"accept them at https://huggingface.co/{repository}, then run: hf auth login",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFound(f"the Hugging Face hub has no model {repository}", "check the name") from error
    except Exception as error:  # the library passes on whatever its transport raises
        if isinstance(error, (MemoryError, RecursionError)):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DownloadError(
            f"{repository} could not be fetched: {reason}", "check the network, then try again"
        ) from error
