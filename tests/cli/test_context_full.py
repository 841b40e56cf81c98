"""A message that doesn't fit isn't sent: what would make room is offered, with its cost, and the message waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.cli import context_full
from mlxchat.cli.context_full import ways_out
from mlxchat.engine.messages import user
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.errors import EngineFailed
from support.fake_engine import FakeChat, FakeEngine, FakeOutlook
from support.repl_talk import Conversation

pytestmark = pytest.mark.plain

ANY = RequestOptions()


def talk(limit: int, turns: int, monkeypatch: pytest.MonkeyPatch) -> FakeChat:
    """Each turn is five words by the fake's count, the system prompt three; `limit` is the context."""
    monkeypatch.setattr(FakeOutlook.__init__, "__defaults__", (limit,))
    chat = FakeChat(FakeEngine(), "Be brief.")
    for number in range(turns):
        list(chat.ask(user(f"say {number}"), ANY))
    return chat


@pytest.mark.parametrize(("limit", "dropped"), [(22, 1), (21, 2), (17, 2), (16, 3), (12, 3)])
def test_the_fewest_turns_are_dropped(limit: int, dropped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = talk(limit, 4, monkeypatch)
    lines = ways_out(chat, user("one more"), ANY)
    [drop] = [line for line in lines if line.startswith("/drop")]
    assert drop.startswith(f"/drop {dropped} ")
    tokens = 3 + 5 * (4 - dropped) + 3
    assert f"{tokens - tokens // 2} of {tokens} tokens to prefill again" in drop
    assert chat.drop_oldest(dropped)
    assert chat.outlook(ANY, [*chat.messages, user("one more")]).tokens < limit


def test_the_reply_needs_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = talk(22, 4, monkeypatch)
    found = context_full._least_to_drop(chat, user("one more"), ANY, reply=6)
    assert found is not None
    assert found[0] == 2, "six tokens of reply cost another turn"


def test_where_dropping_is_not_enough_it_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ways_out(talk(8, 3, monkeypatch), user("one more " * 5), ANY)
    assert [line.split()[0] for line in lines] == ["/rewind", "/new"]
    assert ways_out(talk(8, 0, monkeypatch), user("one more " * 5), ANY) == []


def test_a_smaller_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = talk(30, 4, monkeypatch)
    lines = ways_out(chat, user("one more"), RequestOptions(SamplingOptions(max_tokens=9)))
    assert lines[0].startswith("/set max_tokens 4  ")
    assert "4 tokens are left" in lines[0]
    assert lines[1].startswith("/drop 1 ")


def test_an_engine_that_cannot_say_leaves_the_simplest(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: FakeChat, *_: object) -> FakeOutlook:
        raise EngineFailed("the engine has stopped", "start mlxchat again")

    monkeypatch.setattr(FakeChat, "outlook", gone)
    assert ways_out(talk(30, 1, monkeypatch), user("x"), ANY) == ["/new  begins a new chat"]


def test_the_message_waits_at_the_prompt_until_it_is_sent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Conversation(home, "say one", "say two", "too long", "/stats", "/drop 1", "say three", "/stats")
    assert held.typist.drafts == ["", "", "", "too long", "too long", "too long", "", ""]
    assert "the prompt has 9,999 tokens" in held.said
    assert "\n/drop 1    goes on without your oldest message, on a new branch" in held.said
    assert "\n/rewind N  takes your last N messages back\n/new       begins a new chat\n" in held.said
    assert held.messages == ["u:say two", "a:two", "u:say three", "a:three"]


def test_so_do_its_files(home: Path) -> None:
    (home / "a.txt").write_text("in the file")
    lines = ["say one", f"/file {home}/a.txt", "too long", "/new", "/file"]
    held = Conversation(home, *lines)
    assert held.typist.drafts[4:] == ["too long", "too long"]
    assert held.said.endswith(f"1  {home}/a.txt\n")
