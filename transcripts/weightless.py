"""A planner for a model of which nothing but config, tokenizer and template is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from ..engine import backend

backend.prepare()  # before the first import of mlx, which the tokenizer's loader brings

from ..engine import models  # noqa: E402
from ..engine.kv_shape import context_limit, layer_kinds, text_config  # noqa: E402
from ..engine.loader import image_reader_of, load_tokenizer  # noqa: E402
from ..engine.models import ModelFolder  # noqa: E402
from ..engine.prompts import PromptRenderer  # noqa: E402
from ..engine.template_files import resolve as resolve_template  # noqa: E402
from .padding import padding_of  # noqa: E402
from .plan import Planner  # noqa: E402
from .prompts import Prompts  # noqa: E402
from .settings import Settings  # noqa: E402


@dataclass(frozen=True)
class Weightless:
    """The planner, and what to say of its model. `limit`: most positions of prompt and answer; `sees`: pictures."""

    planner: Planner
    name: str
    template: str
    limit: int
    sees: bool

    @classmethod
    def load(cls, model: str, template: str | None, settings: Settings) -> Weightless:
        """From a folder that may lack its weights. Raises ModelError, TemplateError, UsageError."""
        folder = _folder(model)
        tokenizer, config = load_tokenizer(folder)
        source, label = resolve_template(template, tokenizer)
        reader = image_reader_of(folder, config, tokenizer)
        renderer = PromptRenderer(tokenizer, source, label, images=reader)
        prompts = Prompts(renderer, tokenizer, settings.thinking, date.today().isoformat())
        text = text_config(config)
        layers = text.get("num_hidden_layers")
        recurrent = isinstance(layers, int) and "recurrent" in layer_kinds(text, layers)
        limit = min(context_limit(config), settings.max_context or context_limit(config))
        padding = padding_of(prompts) if settings.pad else None
        planner = Planner(prompts, limit, recurrent=recurrent, padding=padding)
        return cls(planner, folder.name, label, limit, reader is not None and reader.works)


def _folder(model: str) -> ModelFolder:
    path = Path(model).expanduser()
    if (path / "config.json").is_file():
        return ModelFolder(path.resolve().name, path.resolve(), "folder")
    return models.resolve(model)
