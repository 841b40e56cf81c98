"""The program with the fake engine inside: `python program.py ARGS` is `mlxchat ARGS`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # tests/, so that nothing here shadows a module by its name

from mlxchat.cli import chat_run, engine_access, repl_models, repl_run  # noqa: E402
from mlxchat.cli.main import main  # noqa: E402
from support.fake_engine import FakeChat, FakeEngine, FakeInfo  # noqa: E402


def no_download(*_names: Any, **_flags: Any) -> None:
    """The fake model is always there."""


def install(target: Any = chat_run) -> None:
    engine_access.start_engine = FakeEngine.start  # type: ignore[assignment]
    target.new_chat = FakeChat
    target.ensure_model = no_download
    target.choose_first_model = lambda flags, stdin, streams: flags
    if target is chat_run:
        chat_run.sees_pictures = lambda model, offline: model == "seeing"
        repl_run.start_engine = FakeEngine.start  # type: ignore[assignment]
        repl_run.new_chat = FakeChat  # type: ignore[assignment]
        repl_run.model_facts = FakeInfo.of  # type: ignore[assignment]
        repl_models.start_engine = FakeEngine.start  # type: ignore[assignment]
        repl_models.model_facts = FakeInfo.of  # type: ignore[assignment]
        repl_models.ensure_model = no_download  # type: ignore[assignment]
        repl_models.sees_pictures = chat_run.sees_pictures
        repl_models.fits_beside = lambda name: True


if __name__ == "__main__":
    install()
    main()
