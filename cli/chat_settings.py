"""How a chat is run, as its session keeps it: taken from the flags, and brought back into those of a later run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..engine.options import RequestOptions
from ..engine.user_aliases import meaning
from ..errors import ModelError, UsageError
from ..transcripts.session_settings import SessionSettings
from .chat_flags import ChatFlags
from .sampling_settings import read_settings
from .streams import Streams


def settings_of(flags: ChatFlags, system: str | None) -> SessionSettings:
    """What the session's header keeps."""
    options: RequestOptions = flags.request_options()
    return SessionSettings(
        model=_lasting_model(flags.model_name),
        system=system,
        template=_lasting_template(flags.template),
        adapter=None if flags.adapter is None else str(Path(flags.adapter).expanduser().absolute()),
        sampling=options.sampling,
        thinking=options.thinking,
    )


def restored(flags: ChatFlags, saved: SessionSettings, streams: Streams) -> ChatFlags:
    """The flags, those not given taken from the session."""
    sampling, thinking = saved.sampling, saved.thinking
    think = thinking.enabled if flags.think is None else flags.think
    names = ("temp", "top_p", "top_k", "min_p", "max_tokens", "seed")
    given = {name: getattr(flags, name) for name in names}
    return replace(
        flags,
        adapter=flags.adapter or (saved.adapter if flags.model is None else None),
        model=flags.model or saved.model or flags.defaults.get("model"),
        template=flags.template or saved.template,
        think=think,
        think_budget=thinking.budget if flags.think_budget is None and think is not False else flags.think_budget,
        option=[*_saved_options(flags, saved, streams), *(flags.option or [])],
        **{name: getattr(sampling, name) if value is None else value for name, value in given.items()},
    )


def _saved_options(flags: ChatFlags, saved: SessionSettings, streams: Streams) -> list[str]:
    """The session's further settings as they would be typed, without those that there are none of in this version."""
    stops = () if read_settings(flags.option or []).stop else saved.sampling.stop
    options = [f"stop={text}" for text in stops]
    for name, value in saved.sampling.extra.items():
        try:
            read_settings([f"{name}={value}"])
        except UsageError as error:
            streams.note(f"a setting of the session is left out: {error.message}")
        else:
            options.append(f"{name}={value}")
    return options


def _lasting_model(name: str) -> str:
    """A model's folder by its whole path, so that the session can go on from anywhere; an alias of the user's, which
    may come to mean another, by what it means; any other name as it is."""
    name = meaning(name)
    if "/" in name or name in (".", "..") or Path(name).is_dir():
        from ..engine.models import resolve

        try:
            found = resolve(name)
        except ModelError:
            return name
        return str(found.path) if found.origin == "folder" else name
    return name


def _lasting_template(name: str | None) -> str | None:
    """A template file by its whole path; a built-in one by its name."""
    from ..engine.template_files import built_in_names

    if name is None or name in built_in_names():
        return name
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else name
