"""The conversation, with a reader that types from a list."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import repl
from mlxchat.cli.attachments import Attachments
from mlxchat.cli.chat_flags import ChatFlags
from mlxchat.cli.pictures import StagedPicture, stage
from mlxchat.cli.plain_output import PlainOutput
from mlxchat.cli.repl import Repl
from mlxchat.cli.repl_sessions import ReplSessions
from mlxchat.cli.repl_state import ReplState
from mlxchat.cli.saved_chat import SavedChat
from mlxchat.cli.streams import Streams
from mlxchat.engine.messages import FilePart, ImagePart
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.engine.pictures import open_picture
from support.fake_engine import FakeChat, FakeEngine
from support.picture_files import BLUE, png_file

pytestmark = pytest.mark.plain

CTRL_C, CTRL_D = "<ctrl-c>", "<ctrl-d>"
OPTIONS = RequestOptions(SamplingOptions(seed=5))


@dataclass
class Typist:
    """Types what it is given, then Ctrl-D. `word<ctrl-c>` is Ctrl-C with `word` typed."""

    lines: list[str]
    drafts: list[str] = field(default_factory=list)
    typed: str = ""
    multiline: bool = False
    private: bool = True

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


def unreachable(saved: SavedChat) -> Any:
    raise AssertionError("no other chat is begun here")


def converse(
    *lines: str,
    files: Sequence[FilePart] = (),
    pictures: Sequence[StagedPicture] = (),
    sees: bool = True,
    clock: Callable[[], float] = lambda: 0.0,
    system: str | None = None,
) -> Held:
    out, err = io.StringIO(), io.StringIO()
    streams = Streams("never", stdout=out, stderr=err)
    chat, typist = FakeChat(FakeEngine(), system), Typist(list(lines))
    output = PlainOutput(streams, show_stats=True)
    attachments = Attachments(files, pictures, model="fake", sees=sees)
    flags = ChatFlags(model="fake", no_save=True)  # tests/cli/test_repl_sessions.py has chats that are saved
    sessions = ReplSessions(flags, SavedChat(flags, system), unreachable, streams)
    made: Any = Repl
    code = made(lambda: chat, OPTIONS, streams, output, typist, attachments, sessions, clock).run()
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
    assert "no answer yet" in converse("/stats").err
    err = converse("say one", "say two", "/stats").err
    assert "4,096 from memory" in err
    assert "2 answers, prompts of 8,420 tokens, 8,192 of them reused" in err


def test_clear_begins_anew_with_the_same_system_prompt() -> None:
    held = converse("say one", "/clear", "/stats", system="Be brief.")
    assert said(held) == [("system", "Be brief.")]
    assert "no answer yet" in held.err


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
    monkeypatch.setattr(ReplState, "offer", lambda self, message: None)
    assert converse("too long").typist.drafts[-1] != "too long"


class TestPictures:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return png_file(tmp_path / "a b.png")

    def test_one_is_staged_for_the_next_message_only(self, path: Path) -> None:
        held = converse(f"/image {path}", "say one", "say two")
        first, second = held.chat.messages[0], held.chat.messages[2]
        assert [type(part).__name__ for part in first.content] == ["ImagePart", "TextPart"]
        assert "ImagePart" not in [type(part).__name__ for part in second.content]
        assert f"{path} (4 × 2) goes with your next message" in held.err

    @pytest.mark.parametrize("spelled", ["{}", "'{}'", '"{}"', "{escaped}"])
    def test_a_path_may_come_as_terminals_drop_it(self, path: Path, spelled: str) -> None:
        held = converse("/image " + spelled.format(path, escaped=str(path).replace(" ", "\\ ")), "say one")
        assert len(held.chat.messages[0].content) == 2

    def test_several_are_listed_and_let_go_of(self, path: Path, tmp_path: Path) -> None:
        other = png_file(tmp_path / "c.png", BLUE)
        held = converse(f"/image {path}", f"/image {other}", "/image", "/detach 1", "say one")
        assert f"1  {path} (4 × 2)" in held.err
        assert f"2  {other} (4 × 2)" in held.err
        [picture, _] = held.chat.messages[0].content
        assert isinstance(picture, ImagePart)
        assert open_picture(picture.source).pixels[:3] == bytes(BLUE)
        assert len(converse(f"/image {path}", f"/image {other}", "/detach c.png", "x").chat.messages[0].content) == 2
        assert len(converse(f"/image {path}", f"/image {other}", "/detach", "x").chat.messages[0].content) == 1

    def test_nothing_to_let_go_of(self, path: Path) -> None:
        assert "nothing goes with the next message" in converse("/detach").err
        assert "nothing is called 2\n/detach takes 1, or a name" in converse(f"/image {path}", "/detach 2").err
        twice = converse(f"/image {path}", f"/image {path}", "/detach 7").err
        assert "nothing is called 7\n/detach takes 1 to 2, or a name; /image alone lists them" in twice
        assert "nothing goes with your next message" in converse("/image").err

    def test_what_is_no_picture_is_said_and_comes_back(self, tmp_path: Path) -> None:
        held = converse("/image absent.png")
        assert "mlxchat: can't read absent.png: No such file or directory" in held.err
        assert held.typist.drafts[-1] == "/image absent.png"
        assert "is a folder" in converse(f"/image {tmp_path}").err
        assert "not on the public internet" in converse("/image http://127.0.0.1:9/a.png").err

    def test_a_text_model_is_given_none(self, path: Path) -> None:
        held = converse(f"/image {path}", "say one", sees=False)
        assert "fake is a text model and can't see pictures\n/model NAME goes on with one that has vision" in held.err
        assert "(-m)" not in held.err
        assert len(held.chat.messages[0].content) == 1

    @pytest.mark.parametrize("line", ["too long", "say one"])
    def test_they_come_back_with_the_message(self, path: Path, line: str) -> None:
        held = converse(f"/image {path}", line, *(["/undo"] if line == "say one" else []), "/image", "say two")
        assert f"1  {path} (4 × 2)" in held.err
        assert isinstance(held.chat.messages[0].content[0], ImagePart)
        assert held.chat.messages[0].text == "say two"

    def test_a_new_chat_has_none(self, path: Path) -> None:
        assert len(converse(f"/image {path}", "/clear", "say one").chat.messages[0].content) == 1

    def test_those_of_the_command_line_go_first(self, path: Path) -> None:
        held = converse("say one", pictures=[stage(str(path))], files=[FilePart("a.txt", "words")])
        assert [type(part).__name__ for part in held.chat.messages[0].content] == ["ImagePart", "FilePart", "TextPart"]

    def test_a_repl_that_sends_it_twice_is_caught(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Attachments, "clear", lambda self: None)
        held = converse(f"/image {path}", "say one", "say two")
        assert isinstance(held.chat.messages[2].content[0], ImagePart)

    def test_ctrl_c_while_one_is_fetched_stops_only_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(self: Attachments, source: str) -> StagedPicture:
            raise KeyboardInterrupt

        monkeypatch.setattr(Attachments, "stage", interrupted)
        held = converse("/image http://slow.example/a.png", "say one")
        assert held.typist.drafts[1] == "/image http://slow.example/a.png"
        assert said(held)[0] == ("user", "say one")


def test_ctrl_c_between_two_prompts_ends_nothing() -> None:
    presses = [KeyboardInterrupt()]

    def clock() -> float:
        if presses:
            raise presses.pop()
        return 0.0

    held = converse(CTRL_C, "say on", clock=clock)
    assert (held.code, held.out, presses) == (0, "on\n", [])


def test_ctrl_c_right_behind_an_answer_does_not_offer_its_message_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The press was meant for the answer, which was whole already."""

    def pressed(*_: object, **__: object) -> Any:
        @contextmanager
        def stopping() -> Iterator[None]:
            yield
            raise KeyboardInterrupt

        return stopping()

    monkeypatch.setattr(repl, "stopping", pressed)
    held = converse("say one", "/retry")
    assert held.typist.drafts == ["", "", ""]
    assert said(held) == [("user", "say one"), ("assistant", "one")]
    assert held.out == "one\none\n", "its line is whole"
    assert converse("too long").typist.drafts == ["", "too long"]
