"""Saved chats from within a conversation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mlxchat.cli import saved_chat
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.engine.messages import ImagePart
from mlxchat.transcripts.session_appender import is_open
from mlxchat.transcripts.session_file import SavedSession, read_session
from support.picture_files import png_file
from support.repl_talk import Conversation

pytestmark = pytest.mark.plain


def texts(session: SavedSession) -> list[str]:
    return [entry.message.text for entry in session.conversation]


def test_they_are_listed(home: Path) -> None:
    assert "no chat is saved yet" in Conversation(home, "/sessions").said
    first = Conversation(home, "say one").first
    said = Conversation(home, "say two", "/sessions").said
    assert re.search(rf"(?m)^{first}  now  1      fake   say one$", said)
    assert "say two" in said


def test_going_on_with_another(home: Path) -> None:
    first = Conversation(home, "say one").first
    held = Conversation(home, "say two", f"/load {first[:4]}", "say three")
    assert texts(held.read(first)) == ["say one", "one", "say three", "three"]
    assert texts(held.read(held.first)) == ["say two", "two"]
    assert f"resuming {first} “say one”: 2 messages" in held.said
    assert held.last.session_id == first
    assert [message.text for message in held.chats[1].messages] == ["say one", "one", "say three", "three"]
    assert not any(is_open(path) for path in held.sessions.glob("*.jsonl"))


def test_its_settings_come_along(home: Path) -> None:
    first = Conversation(home, "say one", flags=ChatFlags(model="fake", temp=0.25, seed=7)).first
    held = Conversation(home, f"/load {first}", "say two", flags=ChatFlags(model="fake", seed=9))
    [options] = held.chats[1].options
    assert (options.sampling.temp, options.sampling.seed) == (0.25, 9)


def test_a_message_that_got_no_answer_is_offered(home: Path) -> None:
    path = png_file(home / "a.png")
    with pytest.raises(ZeroDivisionError):
        Conversation(home, f"/image {path}", "crash", flags=ChatFlags(model="fake"))
    [first] = [file.stem for file in (home / "sessions").glob("*.jsonl")]
    held = Conversation(home, f"/load {first}", "/image", "say two")
    assert held.typist.drafts[1] == "crash"
    assert "1  " in held.said
    assert isinstance(held.chats[1].messages[0].content[0], ImagePart)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("/load", "/load needs a chat"),
        ("/load zzz", "no saved session begins with 'zzz'"),
        ("/search", "there is nothing to look for"),
        ("/rename new", "this chat isn't saved yet"),
    ],
)
def test_what_cannot_be_done_is_said_and_comes_back(home: Path, line: str, cause: str) -> None:
    held = Conversation(home, line)
    assert f"mlxchat: {cause}" in held.said
    assert held.typist.drafts[-1] == line


def test_the_hint_for_an_unknown_chat_can_be_typed_right_there(home: Path) -> None:
    assert "begins with 'zzz'\n/sessions lists them\n" in Conversation(home, "/load zzz").said


def test_this_chat_is_not_loaded_again(home: Path) -> None:
    first = Conversation(home, "say one").first
    held = Conversation(home, f"/load {first}", flags=ChatFlags(model="fake", resume=first))
    assert f"{first} is this chat" in held.said
    assert len(held.chats) == 1


@pytest.mark.parametrize(
    ("flags", "of"),
    [
        (ChatFlags(model="other"), "the model other\n/model other first, or leave"),
        (ChatFlags(model="fake", template="chatml"), "another template\nleave"),
    ],
)
def test_a_chat_of_another_model_or_template_needs_a_new_start(home: Path, flags: ChatFlags, of: str) -> None:
    first = Conversation(home, "say one", flags=flags).first
    held = Conversation(home, "say two", f"/load {first}", "say three")
    assert f"{first} is a chat with {of}, then: mlxchat -r {first}" in held.said
    assert texts(held.read(held.first)) == ["say two", "two", "say three", "three"]


def test_names(home: Path) -> None:
    held = Conversation(home, "say one", "/save", "/save my  chat", "/rename", "/rename another", "say two")
    assert f"{held.first} is saved as “say one”; /rename NAME gives it a name" in held.said
    assert f"{held.first} is called “my chat”" in held.said
    assert f"{held.first} is saved as “my chat”" in held.said
    saved = held.read(held.first)
    assert saved.name == "another"
    assert texts(saved) == ["say one", "one", "say two", "two"]


def test_without_saving_there_is_nothing_to_name(home: Path) -> None:
    held = Conversation(home, "say one", "/save it", flags=ChatFlags(model="fake", no_save=True))
    assert "this chat isn't saved" in held.said
    assert list((home / "sessions").iterdir()) == []


def test_search(home: Path) -> None:
    first = Conversation(home, "say A colour").first
    said = Conversation(home, "/search COLOUR", "/search absent").said
    assert f"{first}  user       say A colour\n{first}  assistant  A colour\n" in said
    assert "no saved chat holds that" in said


def test_a_new_chat_after_a_loaded_one_is_a_session_of_its_own(home: Path) -> None:
    first = Conversation(home, "say one").first
    held = Conversation(home, f"/load {first}", "/clear", "say two")
    assert texts(held.read(first)) == ["say one", "one"]
    assert held.last.session_id not in (first, None)


class TestTheOneUsedLast:
    def damaged(self, home: Path) -> Path:
        path = home / "sessions" / "ffffffffffff.jsonl"
        path.write_text("no header\n")
        return path

    def test_a_damaged_one_is_passed_over(self, home: Path) -> None:
        first = Conversation(home, "say one").first
        path = self.damaged(home)
        held = Conversation(home, "say two", flags=ChatFlags(model="fake", continue_last=True))
        assert held.first == first
        assert f"passed over, since it can't be read: {path}, line 1 is no session header" in held.said

    def test_one_that_is_asked_for_is_not(self, home: Path) -> None:
        self.damaged(home)
        with pytest.raises(saved_chat.DataError, match="no session header"):
            Conversation(home, flags=ChatFlags(model="fake", resume="ffff"))

    def test_nor_is_the_only_one(self, home: Path) -> None:
        self.damaged(home)
        with pytest.raises(saved_chat.DataError, match="no session header"):
            Conversation(home, flags=ChatFlags(model="fake", continue_last=True))


class TestTheDayItBegan:
    def aged(self, home: Path, session_id: str) -> None:
        """As if it had been spoken on the last day of February 2024."""
        path = home / "sessions" / f"{session_id}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        noon = 1_709_208_000_000
        for line in lines:
            line["timestamp"] = noon
            if "message" in line:
                line["message"]["timestamp"] = noon
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def test_is_what_a_chat_that_goes_on_names(self, home: Path) -> None:
        first = Conversation(home, "say one").first
        self.aged(home, first)
        assert Conversation(home, flags=ChatFlags(model="fake", resume=first)).chats[0].day == "2024-02-29"
        assert Conversation(home, f"/load {first}").chats[1].day == "2024-02-29"
        assert Conversation(home).chats[0].day is None

    def test_also_in_a_copy_of_a_copy(self, home: Path) -> None:
        first = Conversation(home, "say one").first
        self.aged(home, first)
        copy = Conversation(home, "say two", flags=ChatFlags(model="fake", resume=first, fork=True))
        assert copy.first != first
        again = Conversation(home, "say three", flags=ChatFlags(model="fake", resume=copy.first, fork=True))
        assert again.chats[0].day == "2024-02-29"

    @pytest.mark.parametrize("time", [None, "yesterday", 10**30])
    def test_is_left_open_where_the_file_does_not_say(self, home: Path, time: object) -> None:
        first = Conversation(home, "say one").first
        path = home / "sessions" / f"{first}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line["timestamp"] = time
            if "message" in line:
                line["message"]["timestamp"] = time
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert read_session(path).day is None
