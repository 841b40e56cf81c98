"""The tree of a conversation: numbers that never change, branches that stay, ids that only their model is fed."""

from __future__ import annotations

import pytest
from mlxchat.engine.conversation import Conversation
from mlxchat.engine.conversation_tree import ConversationTree
from mlxchat.engine.messages import Generated, Message, assistant, system, user
from mlxchat.engine.recorder import Unrecorded

pytestmark = pytest.mark.plain


class Moves(Unrecorded):
    """Notes what it is told of steps in the tree."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def moved(self, messages: object) -> None:
        assert isinstance(messages, list)
        self.seen.append([message.text for message in messages])


def talk(*said: str, lead: str | None = "Be brief.") -> Conversation:
    """A conversation in which these were said by turns, a person first."""
    conversation = Conversation(lead, (), Moves(), None)
    for question, answer in zip(said[::2], said[1::2], strict=True):
        say(conversation, question, answer)
    return conversation


def say(conversation: Conversation, question: str, answer: str) -> None:
    conversation.messages.append(user(question))
    conversation._answered(assistant(answer))


def texts(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.messages]


def moves(conversation: Conversation) -> list[list[str]]:
    recorder = conversation._recorder
    assert isinstance(recorder, Moves)
    return recorder.seen


def branches(tree: ConversationTree) -> list[list[str]]:
    ends = [number for number in range(1, len(tree) + 1) if not tree.below(number)]
    return [[node.message.text for node in tree.branch(number)] for number in ends]


def test_what_is_taken_back_stays_and_comes_back() -> None:
    chat = talk("a", "A", "b", "B")
    message = chat.undo()
    assert message is not None
    assert message.text == "b"
    assert texts(chat) == ["Be brief.", "a", "A"]
    assert chat.redo()
    assert texts(chat) == ["Be brief.", "a", "A", "b", "B"]
    assert not chat.redo()
    assert moves(chat) == [["Be brief.", "a", "A"], ["Be brief.", "a", "A", "b", "B"]]
    assert len(chat.tree) == 5, "going to and fro makes no new messages"


def test_several_turns_at_once_and_step_by_step() -> None:
    chat = talk("a", "A", "b", "B", "c", "C")
    assert chat.undo(4) is None
    assert chat.undo(0) is None
    assert chat.undo(2) is chat.tree.node(4).message  # type: ignore[union-attr]
    chat.undo()
    assert texts(chat) == ["Be brief."]
    chat.redo()
    assert texts(chat) == ["Be brief.", "a", "A"]
    chat.redo()
    assert texts(chat)[-1] == "C"


def test_another_text_makes_a_branch_and_ends_the_way_back() -> None:
    chat = talk("a", "A", "b", "B")
    chat.undo()
    say(chat, "other", "O")
    assert not chat.redo()
    assert branches(chat.tree) == [["Be brief.", "a", "A", "b", "B"], ["Be brief.", "a", "A", "other", "O"]]


def test_going_to_an_answer_and_to_a_question() -> None:
    chat = talk("a", "A", "b", "B")
    chat.undo()
    say(chat, "other", "O")
    assert chat.go_to(5) is None
    assert texts(chat) == ["Be brief.", "a", "A", "b", "B"]
    asked = chat.go_to(6)
    assert asked is not None
    assert asked.text == "other"
    assert texts(chat) == ["Be brief.", "a", "A"]
    chat.redo()
    assert texts(chat)[-1] == "B", "a jump can be taken back too"
    with pytest.raises(KeyError):
        chat.go_to(9)


def test_the_same_words_twice_are_two_branches() -> None:
    chat = talk("a", "A")
    chat.undo()
    say(chat, "a", "A")
    assert len(chat.tree) == 5
    assert [node.number for node in chat.tree.path(chat.messages)] == [1, 4, 5]


def test_a_tree_that_told_messages_by_their_words_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxchat.engine.conversation_tree.is_same", lambda one, other: one == other)
    chat = talk("a", "A")
    chat.undo()
    say(chat, "a", "A")
    assert [node.number for node in chat.tree.path(chat.messages)] == [1, 2, 3]


@pytest.mark.parametrize(("lead", "begins"), [("Be brief.", ["Be brief."]), (None, [])])
def test_the_oldest_turns_are_left_out_on_a_branch(lead: str | None, begins: list[str]) -> None:
    chat = talk("a", "A", "b", "B", "c", "C", lead=lead)
    assert not chat.drop_oldest(3), "the last turn can't be left out"
    assert chat.drop_oldest(2)
    assert texts(chat) == [*begins, "c", "C"]
    say(chat, "d", "D")
    assert branches(chat.tree) == [[*begins, "a", "A", "b", "B", "c", "C"], [*begins, "c", "C", "d", "D"]]


def test_another_system_prompt_is_another_beginning() -> None:
    chat = talk("a", "A")
    chat.set_system("Be long.")
    assert (chat.system, texts(chat)) == ("Be long.", ["Be long.", "a", "A"])
    chat.set_system(None)
    assert (chat.system, texts(chat)) == (None, ["a", "A"])
    chat.go_to(3)
    assert chat.system == "Be brief.", "a branch has its own"
    assert len(chat.tree.below(None)) == 3


def sampled(text: str) -> Message:
    return Message("assistant", assistant(text).content, generated=Generated("", (), (1, 2), 0))


def test_ids_are_for_the_model_that_sampled_them() -> None:
    tree = ConversationTree("small")
    messages = [system("s"), user("a"), sampled("A"), user("b")]
    tree.grow(messages)
    assert tree.for_model(messages) == tuple(messages)
    assert [one.generated is not None for one in tree.for_model(messages)] == [False, False, True, False]
    other = tree.for_another("large")
    assert [one.generated for one in other.for_model(messages)] == [None] * 4
    mixed = [*messages, sampled("B")]
    other.grow(mixed)
    assert [one.generated is not None for one in other.for_model(mixed)] == [False, False, False, False, True]
    back = other.for_another("small")
    assert [one.generated is not None for one in back.for_model(mixed)] == [False, False, True, False, False]


def test_a_message_repeated_elsewhere_keeps_who_said_it() -> None:
    tree = ConversationTree("small")
    messages = [user("a"), sampled("A"), user("b"), sampled("B")]
    tree.grow(messages)
    other = tree.for_another("large")
    later = messages[2:]
    other.grow(later)
    assert [one.generated for one in other.for_model(later)] == [None, None]


def test_a_copy_of_one_branch() -> None:
    chat = talk("a", "A", "b", "B")
    chat.undo()
    say(chat, "other", "O")
    copy = chat.tree.trunk(chat.messages)
    assert branches(copy) == [["Be brief.", "a", "A", "other", "O"]]
    assert [node.number for node in copy.path(chat.messages)] == [1, 2, 3, 4, 5]
