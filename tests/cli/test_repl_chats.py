"""New, copied, private and exported chats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.repl_chats import ReplChats
from mlxchat.transcripts.session_appender import is_open
from support.picture_files import png_file
from support.repl_talk import Conversation, everything, kept

pytestmark = pytest.mark.plain

SAID = ["u:say one", "a:one"]


def files(home: Path) -> list[str]:
    return [path.stem for path in (home / "sessions").glob("*.jsonl")]


class TestFork:
    def test_the_old_chat_stays_as_it_is(self, home: Path) -> None:
        held = Conversation(home, "say one", "/set temp 0.5", "/fork", "say two", system="Be brief.")
        copy = held.last.session_id
        assert copy not in (held.first, None)
        assert f"going on in the copy {copy}; {held.first} stays as it is" in held.said
        assert kept(held.read(held.first)) == ["s:Be brief.", *SAID]
        saved = held.read(str(copy))
        assert kept(saved) == everything(saved) == ["s:Be brief.", *SAID, "u:say two", "a:two"]
        assert saved.forked_from == held.first
        assert held.chat.options[0].sampling.temp == saved.settings.sampling.temp == 0.5
        assert not any(is_open(path) for path in held.sessions.glob("*.jsonl"))

    def test_only_the_branch_at_hand_goes_along(self, home: Path) -> None:
        held = Conversation(home, "say one", "say two", "/undo", "say other", "/fork", "/tree")
        assert len(held.chat.tree) == 4
        assert "two" not in "".join(everything(held.read(held.first))[4:])

    def test_a_copy_of_a_chat_that_goes_on_before_a_word_is_said(self, home: Path) -> None:
        first = Conversation(home, "say one").first
        held = Conversation(home, "/fork", "say two", flags=ChatFlags(model="fake", resume=first), system="Other.")
        assert kept(held.read(str(held.last.session_id))) == ["s:Other.", *SAID, "u:say two", "a:two"]
        assert kept(held.read(first)) == SAID

    def test_nothing_to_copy(self, home: Path) -> None:
        assert "nothing is said yet that could be copied" in Conversation(home, "/fork").said
        flags = ChatFlags(model="fake", no_save=True)
        assert "this chat isn't saved, so there is nothing to copy" in Conversation(home, "/fork", flags=flags).said


class TestPrivate:
    def test_nothing_of_it_is_kept(self, home: Path) -> None:
        held = Conversation(home, "say one", "/private", "say secret", "/tree")
        assert files(home) == [held.first]
        assert kept(held.read(held.first)) == SAID
        assert held.messages == ["u:say secret", "a:secret"]
        assert held.typist.private
        assert "secret" not in "".join(path.read_text() for path in home.rglob("*") if path.is_file())

    def test_what_is_written_all_the_same_is_caught(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ReplChats, "_private", ReplChats._new)
        Conversation(home, "/private", "say secret")
        assert len(files(home)) == 1

    def test_a_new_chat_after_it_is_saved_again(self, home: Path) -> None:
        held = Conversation(home, "/private", "say secret", "/set temp 0.5", "/new", "say open", system="Be brief.")
        [session] = files(home)
        assert kept(held.read(session)) == ["s:Be brief.", "u:say open", "a:open"]
        assert held.read(session).settings.sampling.temp == 0.5
        assert not held.typist.private

    @pytest.mark.parametrize(
        ("flags", "cause"),
        [
            (ChatFlags(model="fake", no_save=True), "nothing of this chat is saved"),
            (ChatFlags(model="fake", cache_persist=True), "--cache-persist keeps the KV cache of every chat"),
        ],
    )
    def test_where_it_is_so_already_or_can_not_be(self, home: Path, flags: ChatFlags, cause: str) -> None:
        held = Conversation(home, "/private", flags=flags)
        assert f"mlxchat: {cause}\n" in held.said
        assert len(held.chats) == 1

    def test_begun_without_saving_new_chats_are_not_saved_either(self, home: Path) -> None:
        Conversation(home, "say one", "/new", "say two", flags=ChatFlags(model="fake", no_save=True))
        assert files(home) == []


class TestExport:
    @pytest.mark.parametrize("no_save", [False, True])
    def test_three_formats(self, home: Path, no_save: bool) -> None:
        lines = [f"/export {home}/chat.{suffix}" for suffix in ("md", "json", "sts.jsonl")]
        held = Conversation(home, "say one", *lines, flags=ChatFlags(model="fake", no_save=no_save))
        assert held.said.count("written to ") == 3
        assert "say one" in (home / "chat.md").read_text()
        [row] = [json.loads(line) for line in (home / "chat.json").read_text().splitlines()]
        assert [message["content"] for message in row["messages"]] == ["say one", "one"]
        assert '"session"' in (home / "chat.sts.jsonl").read_text().splitlines()[0]

    def test_the_branch_at_hand(self, home: Path) -> None:
        Conversation(home, "say one", "say two", "/undo", f"/export {home}/chat.md")
        assert "two" not in (home / "chat.md").read_text()

    def test_a_picture_in_it(self, home: Path) -> None:
        picture = png_file(home / "a.png")
        flags = ChatFlags(model="fake", no_save=True)
        Conversation(home, f"/image {picture}", "say one", f"/export {home}/chat.json", flags=flags)
        assert "data:image/png;base64," in (home / "chat.json").read_text()

    @pytest.mark.parametrize(
        ("name", "cause"),
        [("", "/export needs a file's name"), ("chat.pdf", "no format is written to chat.pdf")],
    )
    def test_what_is_no_name_for_it(self, home: Path, name: str, cause: str) -> None:
        assert f"mlxchat: {cause}\n" in Conversation(home, "say one", f"/export {name}").said

    def test_nothing_is_written_over(self, home: Path) -> None:
        (home / "chat.md").write_text("mine")
        assert f"{home}/chat.md is there already" in Conversation(home, "say one", f"/export {home}/chat.md").said
        assert (home / "chat.md").read_text() == "mine"

    def test_nothing_is_said_yet(self, home: Path) -> None:
        flags = ChatFlags(model="fake", no_save=True)
        assert "nothing is said yet" in Conversation(home, f"/export {home}/chat.md", flags=flags).said
        assert "nothing is said yet" in Conversation(home, f"/export {home}/chat.md").said
