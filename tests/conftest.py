"""Shared set-up: the BLAS is chosen before anything imports MLX, and real models come from the test home."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings
from mlxchat.engine import backend, folders, models
from mlxchat.engine.models import ModelFolder

backend.prepare()

# The same examples on each run: a commit is red or green, not both. `make test-slow` searches on ("searching").
settings.register_profile("repeatable", derandomize=True, database=None)
settings.register_profile("searching", print_blob=True)
settings.load_profile("repeatable")

# Started in the background, a shell has SIGINT ignored, and so would every program that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-screens", action="store_true", help="write tests/cli/screens anew instead of comparing")


@pytest.fixture
def write_screens(request: pytest.FixtureRequest) -> bool:
    """Whether screens are to be written instead of compared."""
    return bool(request.config.getoption("--write-screens"))


def pytest_report_header() -> list[str]:
    line, advice = backend.describe()
    return [f"backend: {line}"] + ([f"         {advice}"] if advice else [])


def _pulled(alias: str) -> ModelFolder:
    folder = models.embedded_folder(alias)
    if folder is None:
        home = os.environ.get("MLXCHAT_HOME")
        where = f"MLXCHAT_HOME={home} " if home else ""
        pytest.fail(f"{alias} is not in {folders.models_dir()}; run: {where}mlxchat models pull {alias} --yes")
    return folder


@pytest.fixture(scope="session")
def smollm2_folder() -> ModelFolder:
    """The pulled SmolLM2, as a ModelFolder."""
    return _pulled("smollm2")


@pytest.fixture(scope="session")
def gemma3_folder() -> ModelFolder:
    """The pulled Gemma 3 270M, as a ModelFolder."""
    return _pulled("gemma3-270m")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark plain tests of the library; and a test that neither process selects would never run."""
    for item in items:
        if item.get_closest_marker("plain") and item.path.parent.name in ("cache", "engine", "transcripts"):
            item.add_marker("library")
    lost = [item.nodeid for item in items if not any(item.get_closest_marker(m) for m in ("exact", "plain", "real"))]
    if lost:
        raise pytest.UsageError(f"marked neither exact, plain nor real: {', '.join(lost[:5])}")
