"""Shared set-up: the BLAS is chosen before anything imports MLX, and real models come from the test home."""

from __future__ import annotations

import os

import pytest
from mlxchat.engine import backend

backend.prepare()


def pytest_report_header() -> list[str]:
    line, advice = backend.describe()
    return [f"backend: {line}"] + ([f"         {advice}"] if advice else [])


def _pulled(alias: str):
    from mlxchat.engine import models

    folder = models.embedded_folder(alias)
    if folder is None:
        home = os.environ.get("MLXCHAT_HOME")
        where = f"MLXCHAT_HOME={home} " if home else ""
        pytest.fail(f"{alias} is not in {models.models_dir()}; run: {where}mlxchat models pull {alias} --yes")
    return folder


@pytest.fixture(scope="session")
def smollm2_folder():
    """The pulled SmolLM2, as a ModelFolder."""
    return _pulled("smollm2")


@pytest.fixture(scope="session")
def gemma3_folder():
    """The pulled Gemma 3 270M, as a ModelFolder."""
    return _pulled("gemma3-270m")
