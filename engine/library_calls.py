"""Around calls into mlx-lm, mlx-vlm and transformers: their chatter is kept back, their errors said in our words."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

from ..errors import MlxchatError, ModelIncomplete, ModelUnsupported


@contextlib.contextmanager
def named_errors(name: str, library: str) -> Iterator[None]:
    """Turn what `library` raises for the model folder `name` into ModelUnsupported or ModelIncomplete; ours pass."""
    try:
        yield
    except MlxchatError:
        raise
    except SystemExit as error:  # mlx-lm's olmo exits where a package of its own is absent
        raise ModelUnsupported(
            f"{name} needs a package that isn't installed", "use another conversion of it, or another model"
        ) from error
    except (KeyError, TypeError, AttributeError, NotImplementedError, ImportError) as error:
        raise ModelUnsupported(
            f"{name} can't be built by {library}: {_first_line(error)}", "another conversion of it may work"
        ) from error
    except (ValueError, OSError, RuntimeError) as error:
        raise ModelIncomplete(
            f"{name} can't be loaded: {_first_line(error)}", "fetch the model again, or another conversion"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' warnings, advice and bars off the terminal."""
    for name, value in (
        ("TRANSFORMERS_VERBOSITY", "error"),
        ("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1"),
        ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        os.environ.setdefault(name, value)
    names = ("transformers", "huggingface_hub", "mlx_lm", "mlx_vlm")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
