"""Every exception mlxchat raises on purpose.

The library raises; `cli.main.main` alone turns an error into one line of cause, one of help, and an exit code.
A class fixes the exit code and the stable `code` that `--json` prints; an instance brings the words.
"""

from __future__ import annotations


class MlxchatError(Exception):
    """Base of the tree. `message` is one line of cause, `hint` one line of help (may be empty)."""

    exit_code = 1
    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(MlxchatError):
    """The command line, or a slash command, can't be understood (also: an empty prompt)."""

    exit_code = 2
    code = "usage"


class DataError(MlxchatError):
    """Input was read but is not what it should be: bad transcript, not UTF-8, not JSON."""

    exit_code = 65
    code = "bad_data"


class TemplateError(DataError):
    """The chat template is missing, doesn't parse, or refuses these messages."""

    code = "template"


class ContextExceeded(DataError):
    """The prompt is longer than the model's context. Nothing was sent; nothing is lost."""

    code = "context_exceeded"


class InputError(MlxchatError):
    """A file named by the user is missing or can't be read."""

    exit_code = 66
    code = "input"


class ModelError(MlxchatError):
    """A model can't be used. Base of the more exact classes below."""

    exit_code = 69
    code = "model"


class ModelNotFound(ModelError):
    """No such alias, folder or downloaded repository (or --offline and it is not on disk)."""

    code = "model_not_found"


class ModelIncomplete(ModelError):
    """The folder lacks a file, or one of its files is broken."""

    code = "model_incomplete"


class ModelUnsupported(ModelError):
    """The architecture is in neither mlx-lm nor mlx-vlm, or this machine can't run it."""

    code = "model_unsupported"


class ModelRefused(ModelError):
    """The folder asks for its own Python code to be run, which mlxchat never does."""

    code = "model_refused"


class ModelTooLarge(ModelError):
    """Weights plus KV cache at the expected length don't fit in memory."""

    code = "model_too_large"


class DownloadError(ModelError):
    """A download was declined, failed, or arrived with the wrong checksum. Nothing half-made is left."""

    code = "download"


class OutputError(MlxchatError):
    """An output or session file can't be written. Never raised for the KV cache."""

    exit_code = 74
    code = "output"


class EngineFailed(MlxchatError):
    """The model run itself failed. The conversation up to it is kept."""

    code = "engine"


class Interrupted(MlxchatError):
    """Ctrl-C ended a one-shot run."""

    exit_code = 130
    code = "interrupted"


class CacheTrouble(MlxchatError):
    """Something in the KV store failed. Caught inside the engine: the user sees one line, the chat goes on."""

    code = "cache"
