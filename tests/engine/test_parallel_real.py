"""Real weights on a fast BLAS: several answers at once are the greedy answers of each alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.engine.engine import Engine
from mlxchat.engine.models import ModelFolder
from mlxchat.engine.options import CacheOptions, EngineOptions
from support.at_once import alone, asked, ids_of, together

pytestmark = [pytest.mark.real, pytest.mark.slow]

QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about a garden by a river, and another about the people who live beside it.",
    "Count from one to ten.",
)


@pytest.mark.parametrize("model", ["smollm2_folder", "gemma3_folder"])
def test_greedy_answers_are_those_of_each_alone(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder: ModelFolder = request.getfixturevalue(model)
    answers = []
    for parallel, ask in ((1, alone), (3, together)):
        cache = CacheOptions(directory=tmp_path / str(parallel))
        engine = Engine.start(EngineOptions(str(folder.path), cache=cache, parallel=parallel), print)
        try:
            answers.append([ids_of(one) for one in ask(engine, *(asked(q, q, max_tokens=16) for q in QUESTIONS))])
        finally:
            engine.close()
    assert answers[0] == answers[1]
