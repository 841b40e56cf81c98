"""When the chat is told to work ahead, and with which words."""

from __future__ import annotations

import asyncio

import pytest
from mlxchat.cli.ahead import LEAST_TOKENS, WorkAhead, sendable
from mlxchat.cli.line_reader import PAUSE_S, Typing
from mlxchat.engine.messages import FilePart
from mlxchat.engine.options import RequestOptions
from prompt_toolkit.buffer import Buffer
from support.fake_engine import FakeChat, FakeEngine

pytestmark = pytest.mark.plain


@pytest.fixture
def chat() -> FakeChat:
    return FakeChat(FakeEngine())


def work(chat: FakeChat, *, spare: bool = True) -> WorkAhead:
    made = WorkAhead(RequestOptions(), lambda: spare)
    made.opened(chat)
    made.rest()
    return made


def test_the_prompt_itself_is_prepared_for(chat: FakeChat) -> None:
    work(chat)
    assert chat.prepared == [(None, 1), (None, 1)]


def test_words_count_once_they_have_ended(chat: FakeChat) -> None:
    ahead = work(chat)
    for text in ("W", "Wh", "Why ", "Why n"):
        ahead.typed(text, False)
    assert chat.prepared[2:] == [("Why ", LEAST_TOKENS)]


def test_a_pause_takes_what_is_there(chat: FakeChat) -> None:
    work(chat).typed("Why not", True)
    assert chat.prepared[2:] == [("Why not", 1)]


def test_files_that_go_along_come_first(chat: FakeChat) -> None:
    ahead = WorkAhead(RequestOptions(), lambda: True)
    ahead.opened(chat)
    ahead.rest([FilePart("notes.txt", "some notes")])
    ahead.typed("Read this ", False)
    draft, _ = chat.prepared[-1]
    assert draft is not None
    assert "some notes" in draft


def test_a_low_battery_is_left_alone(chat: FakeChat) -> None:
    work(chat, spare=False).typed("Why not", True)
    assert chat.prepared == []


@pytest.mark.parametrize("line", ["", "  ", "/", "/undo", "/undo now", "/unknown ", '"""', '"""a block', "//text "])
def test_what_is_no_message_yet_is_left_alone(line: str) -> None:
    assert sendable(line) is None


@pytest.mark.parametrize("line", ["hello", "  hello ", "two\nlines "])
def test_the_space_behind_a_word_is_kept(line: str) -> None:
    assert sendable(line) == line.lstrip()


def test_typing_is_told_at_once_and_again_when_it_pauses() -> None:
    told: list[tuple[str, bool]] = []

    async def type_two_words() -> None:
        buffer = Buffer()
        buffer.on_text_changed += Typing(lambda text, paused: told.append((text, paused)))
        buffer.insert_text("two ")
        buffer.insert_text("words")
        await asyncio.sleep(2 * PAUSE_S)

    asyncio.run(type_two_words())
    assert told == [("two ", False), ("two words", False), ("two words", True)]
