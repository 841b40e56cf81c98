"""The conversation, with a reader that types from a list."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from mlxchat.cli.plain_output import PlainOutput
from mlxchat.cli.repl import Repl
from mlxchat.cli.streams import Streams
from mlxchat.engine.messages import FilePart
from mlxchat.engine.options import RequestOptions, SamplingOptions
from support.fake_engine import FakeChat, FakeEngine

pytestmark = pytest.mark.exact

CTRL_C, CTRL_D = "<ctrl-c>", "<ctrl-d>"
OPTIONS = RequestOptions(SamplingOptions(seed=5))


@dataclass
class Typist:
    """Types what it is given, then Ctrl-D. `word<ctrl-c>` is Ctrl-C with `word` typed."""

    lines: list[str]
    drafts: list[str] = field(default_factory=list)
    typed: str = ""

    def read(self, default: str = "") -> str:
        self.drafts.append(default)
        line = self.lines.pop(0) if self.lines else CTRL_D
        if line.endswith(CTRL_C):
            self.typed = line.removesuffix(CTRL_C)
            raise KeyboardInterrupt
        if line == CTRL_D:
            raise EOFError
        return line


@dataclass
class Held:
    """What a conversation left behind."""

    chat: FakeChat
    typist: Typist
    out: str
    err: str
    code: int


def converse(
    *lines: str, files: Sequence[FilePart] = (), clock: Callable[[], float] = lambda: 0.0, system: str | None = None
) -> Held:
    out, err = io.StringIO(), io.StringIO()
    streams = Streams("never", stdout=out, stderr=err)
    chat, typist = FakeChat(FakeEngine(), system), Typist(list(lines))
    output = PlainOutput(streams, show_stats=True)
    code = Repl(chat, OPTIONS, streams, output, typist, files, clock).run()  # type: ignore[arg-type]
    return Held(chat, typist, out.getvalue(), err.getvalue(), code)


def said(held: Held) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in held.chat.messages]


def test_turn_after_turn() -> None:
    held = converse("say one", "", "  ", "say two")
    assert said(held) == [("user", "say one"), ("assistant", "one"), ("user", "say two"), ("assistant", "two")]
    assert held.out == "one\ntwo\n"
    assert held.err.count("prompt 4,210 (4,096 cached, 114 new)") == 2
    assert held.code == 0
    assert held.chat.options == [OPTIONS, OPTIONS]


def test_the_cache_at_the_prompt() -> None:
    held = converse("/cache")
    assert "reused   50 of 100 prompt tokens in 1 turn (50 %)" in held.err
    assert "missed   40 tokens: evicted" in held.err
    assert "disk     nothing is written" in held.err
    assert said(held) == []


def test_exit_leaves_at_once() -> None:
    held = converse("/exit", "say never")
    assert held.typist.lines == ["say never"]


def test_an_unknown_command_is_not_sent_and_comes_back() -> None:
    held = converse("/hlep")
    assert held.chat.messages == []
    assert "did you mean /help?" in held.err
    assert held.typist.drafts == ["", "/hlep"]


def test_a_literal_slash_is_sent() -> None:
    assert said(converse("//hlep"))[0] == ("user", "/hlep")


def test_help() -> None:
    assert "/retry" in converse("/help").err


def test_stats() -> None:
    assert "No answer yet." in converse("/stats").err
    err = converse("say one", "say two", "/stats").err
    assert "4,096 from memory" in err
    assert "2 answers, prompts of 8,420 tokens, 8,192 of them reused" in err


def test_clear_begins_anew_with_the_same_system_prompt() -> None:
    held = converse("say one", "/clear", "/stats", system="Be brief.")
    assert said(held) == [("system", "Be brief.")]
    assert "No answer yet." in held.err


def test_retry() -> None:
    held = converse("say one", "/retry")
    assert held.chat.retries == 1
    assert held.out == "one\none\n"
    assert said(held) == [("user", "say one"), ("assistant", "one")]


def test_retry_of_nothing() -> None:
    held = converse("/retry", system="Be brief.")
    assert "no message to answer again" in held.err
    assert held.chat.retries == 0


def test_undo_gives_the_message_back() -> None:
    held = converse("say one", "say two", "/undo")
    assert said(held) == [("user", "say one"), ("assistant", "one")]
    assert held.typist.drafts[-1] == "say two"
    assert "nothing to take back" in converse("/undo").err


def test_files_go_with_the_first_message_and_come_back_with_it() -> None:
    part = FilePart("a.txt", "in the file")
    held = converse("say one", "/undo", "say two", "say three", files=[part])
    first = held.chat.messages[0]
    assert first.content[0] == part
    assert "say two" in first.text
    assert held.typist.drafts[2] == "say one", "only what was typed comes back, not the file"
    assert all(part not in message.content for message in held.chat.messages[1:])


@pytest.mark.parametrize(
    ("line", "cause"), [("too long", "the prompt has 9,999 tokens"), ("fail so far", "the model run failed")]
)
def test_a_failed_turn_loses_nothing(line: str, cause: str) -> None:
    held = converse("say one", line)
    assert said(held) == [("user", "say one"), ("assistant", "one")]
    assert cause in held.err
    assert held.typist.drafts[-1] == line


def test_ctrl_c_at_a_line_clears_it_and_stays() -> None:
    held = converse(f"half a line{CTRL_C}", f"half{CTRL_C}", "say one")
    assert said(held)[0] == ("user", "say one")
    assert held.typist.drafts == ["", "", "", ""]


def test_ctrl_c_twice_at_an_empty_prompt_leaves() -> None:
    held = converse(CTRL_C, CTRL_C, "say never")
    assert held.code == 0
    assert held.typist.lines == ["say never"]
    assert held.err.count("Ctrl-C once more") == 1


def test_ctrl_c_twice_but_slowly_stays() -> None:
    times = iter([0.0, 0.0, 5.0, 5.0, 10.0, 10.0])
    held = converse(CTRL_C, CTRL_C, "say one", clock=lambda: next(times))
    assert said(held)[0] == ("user", "say one")


def test_a_repl_that_forgets_the_message_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repl, "_take_back", lambda self, message: None)
    assert converse("too long").typist.drafts[-1] != "too long"
