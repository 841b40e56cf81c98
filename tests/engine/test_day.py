"""The day that a template may name stays the one on which the chat began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from mlxchat.engine.chat import Chat
from mlxchat.engine.messages import assistant, user
from mlxchat.engine.prompts import Prompt, PromptRenderer
from support.scripted import ScriptedEngine, ask, model_folder

pytestmark = pytest.mark.exact

BEGAN = "2024-02-29"
HISTORY = (user("Hello"), assistant("Hi."))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEngine]:
    work = tmp_path_factory.mktemp("day")
    made = ScriptedEngine(model_folder(work / "model", "qwen3", "gpt_oss"), work / "work", "Yes.<|return|>")
    yield made
    made.close()


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that are rendered from now on."""
    seen: list[str] = []
    real = PromptRenderer.render

    def render(self: PromptRenderer, *arguments: Any, **named: Any) -> Prompt:
        prompt = real(self, *arguments, **named)
        seen.append(prompt.text)
        return prompt

    monkeypatch.setattr(PromptRenderer, "render", render)
    return seen


def days(texts: list[str]) -> list[str]:
    return [text.partition("Current date: ")[2][:10] for text in texts]


def test_a_chat_that_goes_on_names_the_day_it_began(engine: ScriptedEngine, texts: list[str]) -> None:
    chat = Chat(engine.engine, None, HISTORY, day=BEGAN)
    ask(chat, "And?")
    ask(chat, "More?")
    assert days(texts) == [BEGAN, BEGAN]


def test_a_new_one_begins_today(engine: ScriptedEngine, texts: list[str]) -> None:
    chat = Chat(engine.engine, None, HISTORY, day=BEGAN)
    ask(chat, "And?")
    chat.clear()
    ask(chat, "Hello")
    ask(engine.chat(), "Hello")
    assert days(texts) == [BEGAN, date.today().isoformat(), date.today().isoformat()]


def test_a_chat_that_forgets_the_day_is_caught(
    engine: ScriptedEngine, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(engine.engine, None, HISTORY, day=BEGAN)
    monkeypatch.setattr(chat, "_day", date.today().isoformat())
    ask(chat, "And?")
    assert days(texts) != [BEGAN]
