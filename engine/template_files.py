"""Templates by name or file: the ones that come with mlxchat, and a user's own."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError, InputError, TemplateError, UsageError

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_FOLDER = Path(__file__).parent / "templates"

# (a token that only this family has, what its turns are made of)
_TURNS = (
    ("<|im_start|>", {"lead": "", "turn_start": "<|im_start|>", "turn_end": "<|im_end|>", "model_role": "assistant"}),
    (
        "<start_of_turn>",
        {"lead": "<bos>", "turn_start": "<start_of_turn>", "turn_end": "<end_of_turn>", "model_role": "model"},
    ),
)


def built_in_names() -> list[str]:
    """The names that --template takes."""
    return sorted(path.stem for path in _FOLDER.glob("*.jinja"))


def resolve(name_or_path: str | None, tokenizer: TokenizerWrapper) -> tuple[str | None, str]:
    """(Jinja text, label) of a built-in template, fitted to the model's own turn tokens, or of a file.

    None: the model's own, (None, label). Raises UsageError for an unknown name, InputError for a file that can't be
    read, DataError if it is not UTF-8, TemplateError for a built-in template when the vocabulary has no turn tokens
    that it could use.
    """
    if name_or_path is None:
        return None, "the model's template"
    if name_or_path in built_in_names():
        text = (_FOLDER / f"{name_or_path}.jinja").read_text(encoding="utf-8")
        return _turn_settings(name_or_path, tokenizer.get_vocab()) + text, name_or_path
    path = Path(name_or_path).expanduser()
    if not path.exists() and path.suffix == "" and path.name == name_or_path:
        raise UsageError(
            f"no built-in template is called {name_or_path!r}",
            f"built in: {', '.join(built_in_names())}; anything else is the path of a Jinja file",
        )
    try:
        return path.read_bytes().decode("utf-8"), path.name
    except OSError as error:
        raise InputError(f"can't read the template {name_or_path}: {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"the template {name_or_path} is not UTF-8", "save it as UTF-8 text") from error


def _turn_settings(name: str, vocab: Container[str]) -> str:
    for token, words in _TURNS:
        if token in vocab and words["turn_end"] in vocab:
            return "".join(f"{{%- set {key} = '{value}' -%}}" for key, value in words.items())
    known = " or ".join(token for token, _ in _TURNS)
    raise TemplateError(
        f"the template {name} needs turn tokens that this model lacks ({known})",
        "leave --template out, or give a Jinja file of your own",
    )
