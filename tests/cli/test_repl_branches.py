"""The commands that go from branch to branch, and that their session goes along."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.conversation_map import tree_lines
from mlxchat.engine.conversation_tree import ConversationTree
from mlxchat.engine.messages import assistant, user
from mlxchat.transcripts.session_recorder import SessionRecorder
from support.repl_talk import Conversation, everything, kept

pytestmark = pytest.mark.plain


TWO = ("say one", "say two")
SAID = ["u:say one", "a:one", "u:say two", "a:two"]


def test_undo_and_redo(home: Path) -> None:
    held = Conversation(home, *TWO, "/undo", "/redo")
    assert held.typist.drafts[3:] == ["say two", ""]
    assert held.messages == SAID
    assert "back: behind message 4, “two”" in held.said
    saved = held.read(held.first)
    assert (kept(saved), everything(saved)) == (SAID, SAID), "nothing is written twice"
    assert "nothing to bring back" in Conversation(home, "/redo").said


def test_a_recorder_that_stays_behind_is_caught(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionRecorder, "moved", lambda self, messages: None)
    held = Conversation(home, *TWO, "/undo")
    assert kept(held.read(held.first)) != held.messages


def test_edit_goes_on_from_an_earlier_message_and_keeps_the_branch(home: Path) -> None:
    held = Conversation(home, *TWO, "say three", "/edit 2", "say other")
    assert held.typist.drafts[4] == "say two"
    assert held.messages == ["u:say one", "a:one", "u:say other", "a:other"]
    saved = held.read(held.first)
    assert kept(saved) == held.messages
    assert everything(saved) == [*SAID, "u:say three", "a:three", "u:say other", "a:other"]


def test_edit_of_the_last_brings_its_file_along(home: Path) -> None:
    (home / "a.txt").write_text("in the file")
    held = Conversation(home, f"/file {home}/a.txt", "say one", "/edit", "/file", "say other")
    assert held.typist.drafts[3] == "say one"
    assert f"1  {home}/a.txt" in held.said
    assert "in the file" in held.chat.messages[0].text


def test_rewind(home: Path) -> None:
    held = Conversation(home, *TWO, "say three", "/rewind 2", "/redo", "/rewind")
    assert held.messages == SAID
    assert "2 messages taken back, /redo brings them back: behind message 2, “one”" in held.said
    assert "at the beginning" in Conversation(home, "say one", "/rewind 1").said


@pytest.mark.parametrize(
    ("line", "cause", "there_is"),
    [
        ("/rewind 3", "there are only 2 messages of yours on this branch", "/rewind 2 your first"),
        ("/rewind x", "/rewind takes a number from 1 on, not x", "/rewind 1 is your last message"),
        ("/rewind 0", "/rewind takes a number from 1 on, not 0", "/rewind 2 your first on this branch; /tree"),
        ("/rewind ²", "/rewind takes a number from 1 on, not ²", "/rewind 2 your first"),
        ("/edit 7", "there are only 2 messages of yours on this branch", "/edit 1 is your last message, /edit 2 your"),
        ("/edit -1", "/edit takes a number from 1 on, not -1", "/edit 2 your first on this branch; /tree shows"),
        ("/drop", "/drop takes a number from 1 on", "/drop takes 1; /new begins a new chat"),
        ("/drop 2", "you have said 2 messages here: /drop can leave out 1 at most", "/drop takes 1; /new"),
        ("/tree 99", "there is no message 99", "/tree alone shows them, 1 to 4"),
        ("/tree root", "/tree takes a number from 1 on, not root", "/tree alone shows them, 1 to 4"),
    ],
)
def test_what_cannot_be_done_is_said_and_comes_back(home: Path, line: str, cause: str, there_is: str) -> None:
    held = Conversation(home, *TWO, line)
    assert f"mlxchat: {cause}\n" in held.said
    assert there_is in held.said.splitlines()[-1], "which numbers there are, and how to see them"
    assert held.typist.drafts[-1] == line
    assert held.messages == SAID


def test_nothing_to_edit(home: Path) -> None:
    assert "you have said nothing yet\n/tree shows every branch\n" in Conversation(home, "/edit").said
    assert "there is no message 1\nnothing is said yet\n" in Conversation(home, "/tree 1").said
    assert "/edit 1 is the only one; /tree shows every branch\n" in Conversation(home, "say one", "/edit 7").said
    assert "\n/new begins a new chat\n" in Conversation(home, "say one", "/drop 1").said
    assert "/drop takes 1 to 2; /new" in Conversation(home, "say one", "say two", "say three", "/drop 3").said


def test_retry_keeps_the_old_answer(home: Path) -> None:
    held = Conversation(home, "say one", "/retry", "/tree")
    assert "  2    model: one\n* 3  model: one  ← here\n" in held.said
    assert everything(held.read(held.first)) == ["u:say one", "a:one", "a:one"]


def test_the_tree_and_going_elsewhere(home: Path) -> None:
    held = Conversation(home, *TWO, "/undo", "say other", "/tree", "/tree 4", "/tree", "/tree 5", system="Be brief.")
    first, second = (
        "* 1  system: Be brief.\n"
        "* 2  you: say one\n"
        "* 3  model: one\n"
        "  4    you: say two\n"
        "  5    model: two\n"
        "* 6  you: say other\n"
        "* 7  model: other  ← here\n",
        "* 1  system: Be brief.\n"
        "* 2  you: say one\n"
        "* 3  model: one  ← here\n"
        "  4    you: say two\n"
        "  5    model: two\n"
        "  6  you: say other\n"
        "  7  model: other\n",
    )
    assert first in held.said
    assert second in held.said
    assert held.typist.drafts[6] == "say two", "a question comes back to the prompt"
    assert held.messages[1:] == SAID
    assert kept(held.read(held.first))[1:] == SAID


def test_a_branch_is_there_after_a_restart_under_the_same_number(home: Path) -> None:
    first = Conversation(home, *TWO, "/undo", "say other").first
    held = Conversation(home, "/tree 4", "say three", flags=ChatFlags(model="fake", resume=first))
    assert held.messages == [*SAID, "u:say three", "a:three"]
    saved = held.read(first)
    assert kept(saved) == held.messages
    assert len(saved.entries) == 8, "only the new ones were written"


def test_a_step_alone_is_kept_for_the_next_run(home: Path) -> None:
    first = Conversation(home, *TWO, "/rewind").first
    assert Conversation(home, flags=ChatFlags(model="fake", resume=first)).messages == SAID[:2]


def test_a_branch_without_words_is_not_exported(home: Path) -> None:
    held = Conversation(home, "say one", "/rewind", f"/export {home}/a.md")
    assert "mlxchat: nothing is said on this branch\n/tree shows the others\n" in held.said
    assert not (home / "a.md").exists()


def test_drop_says_what_it_costs_and_writes_a_branch(home: Path) -> None:
    held = Conversation(home, *TWO, "/drop 1", "say three", system="Be brief.")
    assert held.messages == ["s:Be brief.", "u:say two", "a:two", "u:say three", "a:three"]
    assert "goes on without your oldest message, on a new branch (/redo goes back); 5 of 10 tokens" in held.said
    saved = held.read(held.first)
    assert kept(saved) == held.messages
    assert everything(saved)[:5] == ["s:Be brief.", *SAID]


def test_from_the_very_beginning_the_way_leads_back(home: Path) -> None:
    held = Conversation(home, *TWO, "/rewind 2", "/redo", "/edit 2", "say other", "/tree 4")
    assert held.messages == SAID
    saved = held.read(held.first)
    assert (kept(saved), everything(saved)) == (SAID, [*SAID, "u:say other", "a:other"])


def test_without_saving_the_tree_is_there_all_the_same(home: Path) -> None:
    flags = ChatFlags(model="fake", no_save=True)
    held = Conversation(home, *TWO, "/undo", "say other", "/tree 4", flags=flags)
    assert held.messages == SAID
    assert list((home / "sessions").iterdir()) == []


class TestTheMap:
    def test_lines_fit_the_terminal(self) -> None:
        tree = ConversationTree()
        here = tree.grow([user("word " * 50), assistant("answer " * 50)])
        assert [len(line) for line in tree_lines(tree, here, 60)] == [60, 60]
        assert all(len(line) > 12 for line in tree_lines(tree, here, 10)), "words are shown even so"

    def test_a_long_chat_and_many_branches(self) -> None:
        tree = ConversationTree()
        here = tree.grow([user(str(number)) for number in range(3000)])
        for number in range(1, 40):
            tree.add(user("branch"), number)
        lines = list(tree_lines(tree, here, 80))
        assert len(lines) == 3039
        assert lines[-1].endswith("you: 2999  ← here")

    def test_what_has_no_words(self) -> None:
        tree = ConversationTree()
        here = tree.grow([user(""), assistant("", "because")])
        assert [line.split(": ")[1] for line in tree_lines(tree, here, 80)] == ["(nothing)", "(thought only)  ← here"]
