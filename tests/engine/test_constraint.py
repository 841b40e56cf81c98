"""Answers under a JSON schema: whatever the model would rather say, and wherever its thought ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import mlx.core as mx
import numpy as np
import pytest
from mlxchat.engine.answer_schema import checked_schema
from mlxchat.engine.constraint import Constraint, ConstraintMaker
from mlxchat.engine.marker_sets import markers_for
from mlxchat.errors import EngineFailed, UsageError
from support import tiny_tokenizer

pytestmark = pytest.mark.plain

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["city", "count"],
    "additionalProperties": False,
}
TEXT = json.dumps(SCHEMA)
PADDING = 24  # columns of logits past the tokenizer's ids


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> ConstraintMaker:
    tokenizer = tiny_tokenizer.load(tmp_path_factory.mktemp("tokenizer"), "qwen3")
    return ConstraintMaker.of(tokenizer, markers_for(tokenizer, None), tokenizer.eos_token_ids, "tiny")


def encode(maker: ConstraintMaker, text: str) -> list[int]:
    return list(maker.tokenizer.encode(text, add_special_tokens=False))


class Model:
    """Draws what random logits say, but for the ids it is forced to say first, as a constraint lets it."""

    def __init__(self, maker: ConstraintMaker, constraint: Constraint, seed: int) -> None:
        self.maker, self.constraint = maker, constraint
        self.random = np.random.default_rng(seed)
        self.ids: list[int] = encode(maker, "user: describe it")
        self.prompt = len(self.ids)

    def step(self, forced: int | None = None) -> int:
        width = len(self.maker.tokenizer) + PADDING
        logits = mx.array(self.random.normal(size=(1, width)).astype(np.float32))
        masked = self.constraint(mx.array(self.ids), logits)
        drawn = int(mx.argmax(masked, axis=-1).item()) if forced is None else forced
        self.ids.append(drawn)
        return drawn

    def answer(self, limit: int = 400) -> str:
        """Draw to the end; the text of what was drawn freely."""
        start = len(self.ids)
        while self.step() not in self.maker.end_ids:
            assert len(self.ids) < start + limit, "no end"
        self.step()  # the loop draws one more, which nobody reads
        return str(self.maker.tokenizer.decode(self.ids[start:-2]))


@pytest.mark.parametrize("seed", range(12))
def test_an_answer_follows_its_schema(maker: ConstraintMaker, seed: int) -> None:
    model = Model(maker, maker.make(TEXT, reasoning_open=False, may_think=False), seed)
    jsonschema.validate(json.loads(model.answer()), SCHEMA)


def test_without_the_mask_it_does_not(maker: ConstraintMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Constraint, "_allowed", lambda self, width: np.ones(width, np.bool_))
    model = Model(maker, maker.make(TEXT, reasoning_open=False, may_think=False), 0)
    with pytest.raises(EngineFailed, match="left its schema"):
        model.answer()


@pytest.mark.parametrize("close", ["</think>", "</think>\n\n", "</think>\n"])
def test_reasoning_is_free_and_the_answer_is_not(maker: ConstraintMaker, close: str) -> None:
    model = Model(maker, maker.make(TEXT, reasoning_open=True, may_think=True), 1)
    for token in encode(maker, "free words, { no json } at all"):
        model.step(forced=token)
    for token in encode(maker, close):
        model.step(forced=token)
    jsonschema.validate(json.loads(model.answer()), SCHEMA)


def test_a_model_may_open_its_own_thought(maker: ConstraintMaker) -> None:
    constraint = maker.make(TEXT, reasoning_open=False, may_think=True)
    model = Model(maker, constraint, 2)
    for token in encode(maker, "<think>a thought</think>"):
        model.step(forced=token)
    jsonschema.validate(json.loads(model.answer()), SCHEMA)
    opening = encode(maker, "<think>")[0]
    forbidding = maker.make(TEXT, reasoning_open=False, may_think=False)
    assert forbidding._allowed(len(maker.tokenizer))[opening] is np.False_
    assert constraint._end_ids == sorted(maker.end_ids)


def test_it_ends_only_where_the_answer_is_whole(maker: ConstraintMaker) -> None:
    constraint = maker.make('{"enum": ["yes"]}', reasoning_open=False, may_think=False)
    model = Model(maker, constraint, 3)
    end = min(maker.end_ids)
    said = ""
    while not constraint._matcher.is_accepting():
        assert not constraint._allowed(len(maker.tokenizer))[end]
        said += maker.tokenizer.decode([model.step()])
        constraint(mx.array(model.ids), mx.zeros((1, len(maker.tokenizer))))
    assert json.loads(said) == "yes"
    assert constraint._allowed(len(maker.tokenizer)).nonzero()[0].tolist() == sorted(maker.end_ids)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"enum": []}',
        '{"type": "text"}',
        '{"type": "string", "minLength": 5, "maxLength": 2}',
        '{"allOf": [{"type": "string"}, {"type": "number"}]}',
        '{"not": {}}',
        '{"$ref": "https://example.com/schema"}',
        '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}',
        '{"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}]}}, "$ref": "#/$defs/n"}',
        '{"type": "array", "minItems": 1, "items": {"$ref": "#"}}',
        '{"type": "integer", "maximum": Infinity}',
        '{"a":' * 100_000,
    ],
)
def test_what_no_answer_can_follow_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--schema"):
        checked_schema(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        TEXT,
        '{"type": "object", "properties": {"next": {"$ref": "#"}}}',
        '{"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]}',
        '{"type": "array", "items": {"$ref": "#"}}',
    ],
)
def test_what_some_answer_can_follow_is_taken(text: str) -> None:
    assert checked_schema(text) == text


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--schema can't be used with odd"):
        ConstraintMaker.of(object(), markers_for(tiny_tokenizer.load(tmp_path / "t", "qwen3"), None), [1], "odd")
