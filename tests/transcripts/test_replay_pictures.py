"""Transcripts with pictures, replayed on a small vision model: OpenAI's and Inspect's formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.messages import ImagePart
from mlxchat.transcripts.heading import images_in
from mlxchat.transcripts.jobs import NO_IMAGE, Supplied, jobs_of
from mlxchat.transcripts.model import Transcript
from mlxchat.transcripts.reading import read
from mlxchat.transcripts.settings import Settings
from mlxchat.transcripts.weightless import Weightless
from support import vision_models
from support.replays import run
from support.scripted import model_folder

pytestmark = pytest.mark.exact

Value = dict[str, Any]


def url(seed: int) -> str:
    buffer = BytesIO()
    vision_models.picture(120, 90, seed).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def shown(words: str, source: str) -> list[Value]:
    return [{"type": "image_url", "image_url": {"url": source}}, {"type": "text", "text": words}]


def openai(sources: list[str], file: Path) -> Transcript:
    """One conversation, a picture with its first message and one with its third."""
    messages = [
        {"role": "system", "content": "Look at pictures."},
        {"role": "user", "content": shown("What is it?", sources[0])},
        {"role": "assistant", "content": "A cache."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": shown("And this?", sources[1])},
        {"role": "assistant", "content": "A block."},
    ]
    file.write_text(json.dumps({"messages": messages}) + "\n")
    return read(file)


def inspect(sources: list[str], file: Path) -> Transcript:
    """The same as Inspect logs it: every request whole, its pictures among the attachments."""
    attachments = {f"hash{index}": source for index, source in enumerate(sources)}

    def picture(words: str, index: int) -> list[Value]:
        return [{"type": "image", "image": f"attachment://hash{index}"}, {"type": "text", "text": words}]

    said: list[Value] = [
        {"role": "user", "content": picture("What is it?", 0)},
        {"role": "assistant", "content": "A cache."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": picture("And this?", 1)},
        {"role": "assistant", "content": "A block."},
    ]
    events = [
        {"event": "model", "input": said[:at], "output": {"choices": [{"message": said[at]}]}, "model": "m"}
        for at in (1, 3, 5)
    ]
    sample = {"id": "one", "messages": said, "events": events, "attachments": attachments}
    file.write_text(json.dumps({"version": 2, "eval": {"task": "t"}, "samples": [sample]}))
    return read(file)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_models.make(tmp_path_factory.mktemp("vision") / "model", "qwen3_vl")


@pytest.mark.parametrize("write", [openai, inspect])
def test_pictures_are_seen_and_reused(
    write: Callable[[list[str], Path], Transcript], model: Path, tmp_path: Path
) -> None:
    transcript = write([url(1), url(2)], tmp_path / "trace.json")
    ran = run(model, tmp_path / "work", transcript, compare=True)
    assert len(ran.ran) == 3, [row.why for row in ran.rows]
    assert [row.stats.images_encoded for row in ran.ran] == [1, 0, 1]
    assert [row.stats.image_tokens for row in ran.ran] == [12, 12, 24]
    for row in ran.ran:
        assert row.planned.prompt_tokens == row.stats.prompt_tokens
        assert row.planned.common_prefix_tokens == row.stats.common_prefix_tokens
        assert row.stats.prefill_tokens <= row.stats.prompt_tokens - row.stats.common_prefix_tokens + 1
        assert row.baseline is not None
        assert row.baseline.cached_tokens == 0
    assert [row.stats.divergence for row in ran.ran] == ["first", "append", "append"]


def test_another_picture_is_planned_and_told_as_one(model: Path, tmp_path: Path) -> None:
    first = openai([url(1), url(2)], tmp_path / "a.json")
    other = openai([url(3), url(2)], tmp_path / "b.json")
    joined = Transcript("x", "x", (first.requests[0][0], other.requests[0][0]))
    ran = run(model, tmp_path / "work", joined)
    rows = ran.ran
    assert len(rows) == 6
    assert rows[3].stats.common_prefix_tokens == rows[3].planned.common_prefix_tokens < rows[3].stats.prompt_tokens - 12
    assert rows[3].stats.images_encoded == 1


def test_the_plan_without_weights_is_the_same(model: Path, tmp_path: Path) -> None:
    transcript = openai([url(1), url(2)], tmp_path / "trace.json")
    without = Weightless.load(str(model), None, Settings())
    assert without.sees
    planned = [without.planner.plan(job) for job in jobs_of(transcript, Supplied(), pictures=True)]
    ran = run(model, tmp_path / "work", transcript)
    assert [one.prompt_tokens for one in planned] == [row.stats.prompt_tokens for row in ran.ran]
    assert [one.common_prefix_tokens for one in planned] == [row.stats.common_prefix_tokens for row in ran.ran]


def test_pictures_that_cannot_be_read_stand_as_words(model: Path, tmp_path: Path) -> None:
    transcript = openai([url(1), "https://example.org/gone.png"], tmp_path / "trace.json")
    jobs = jobs_of(transcript, Supplied(), pictures=True)
    assert images_in(jobs) == 1
    last = jobs[-1].messages
    assert any(isinstance(part, ImagePart) for part in last[1].content)
    assert NO_IMAGE in last[-1].text
    ran = run(model, tmp_path / "work", transcript)
    assert [row.stats.images_encoded for row in ran.ran] == [1, 0, 0]


def test_a_text_model_replays_words(tmp_path: Path) -> None:
    text_model = model_folder(tmp_path / "text", "llama", "chatml")
    assert not Weightless.load(str(text_model), None, Settings()).sees
    ran = run(text_model, tmp_path / "work", openai([url(1), url(2)], tmp_path / "trace.json"))
    assert [row.stats.image_tokens for row in ran.ran] == [0, 0, 0]
