"""A chat and its file: what was said is there before it is shown, as a tree, whatever happens."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlxchat.engine.events import ReasoningDelta, TextDelta
from mlxchat.engine.messages import ImagePart, Message, TextPart, user
from mlxchat.engine.options import RequestOptions, SamplingOptions
from mlxchat.transcripts.journal import Journal, journal_path
from mlxchat.transcripts.reading import read as read_transcript
from mlxchat.transcripts.session_appender import SessionAppender
from mlxchat.transcripts.session_file import SavedSession, read_session
from mlxchat.transcripts.session_recorder import SessionRecorder
from mlxchat.transcripts.session_settings import SessionSettings
from mlxchat.transcripts.session_store import SessionStore
from support.fake_engine import FakeChat, FakeEngine
from support.sessions import opened

pytestmark = pytest.mark.plain

SETTINGS = SessionSettings(model="m", system="Be brief.")
OPTIONS = RequestOptions()


class Saved:
    """A chat that is recorded in a folder, and its file as it stands."""

    def __init__(self, folder: Path, settings: SessionSettings = SETTINGS) -> None:
        self.told: list[str] = []
        self.folder = folder
        self.recorder = SessionRecorder(folder, settings, self.told.append)
        self.chat = FakeChat(FakeEngine(), settings.system, recorder=self.recorder)

    def ask(self, *texts: str) -> None:
        for text in texts:
            list(self.chat.ask(user(text), OPTIONS))

    @property
    def path(self) -> Path:
        return self.folder / f"{self.recorder.session_id}.jsonl"

    def read(self) -> SavedSession:
        return read_session(self.path)

    def again(self, settings: SessionSettings = SETTINGS) -> Saved:
        """The same session, resumed."""
        self.recorder.close()
        saved = self.read()
        other = Saved(self.folder, settings)
        other.recorder = SessionRecorder.resume(opened(self.path), saved, settings, other.told.append)
        history = [entry.message for entry in saved.answered if entry.message.role != "system"]
        other.chat = FakeChat(FakeEngine(), settings.system, history, other.recorder)
        return other


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    made = Saved(tmp_path / "sessions")
    made.folder.mkdir(mode=0o700)
    return made


def said(session: SavedSession) -> list[str]:
    return [f"{entry.message.role[0]}:{entry.message.text}" for entry in session.conversation]


def everything(session: SavedSession) -> list[str]:
    return [f"{entry.message.role[0]}:{entry.message.text}" for entry in session.entries]


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["type"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_chat_as_it_is_told(saved: Saved) -> None:
    assert not saved.path.exists(), "an empty chat leaves nothing"
    saved.ask("say one", "think two")
    session = saved.read()
    assert said(session) == ["s:Be brief.", "u:say one", "a:one", "u:think two", "a:two"]
    assert session.conversation[4].message.reasoning == "because"
    assert session.settings == SETTINGS
    assert session.conversation[2].model == "m"
    assert session.conversation[2].usage is not None
    assert session.conversation[2].usage.prompt_tokens == 4210
    assert session.tokens == 4210 + 6 - 2
    assert (session.turns, session.opening, session.skipped) == (2, "say one", ())
    assert [message.text for message in saved.chat.messages] == [text[2:] for text in said(session)]
    assert saved.told == []
    assert saved.recorder.failure is None


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "home" / "sessions")
    saved.ask("say one")
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(one.stat().st_mode) for one in (saved.folder, saved.folder.parent)] == [0o700, 0o700]
    assert str(saved.folder) in saved.told[0], "the first time it says where"
    saved.folder.chmod(0o755)
    Saved(saved.folder).ask("say two")
    assert stat.S_IMODE(saved.folder.stat().st_mode) == 0o700


def test_the_message_is_written_before_the_model_sees_it(saved: Saved) -> None:
    events = saved.chat.ask(user("say one"), OPTIONS)
    assert said(saved.read())[-1] == "u:say one"
    list(events)


def test_each_word_is_written_before_it_is_shown(saved: Saved) -> None:
    for event in saved.chat.ask(user("think words"), OPTIONS):
        if isinstance(event, TextDelta | ReasoningDelta):
            last = saved.read().conversation[-1].message
            assert last.interrupted
            assert (last.text if isinstance(event, TextDelta) else last.reasoning or "").endswith(event.text)
    assert not journal_path(saved.path).exists(), "the answer itself stands in the session"
    assert not saved.read().conversation[-1].message.interrupted


def test_undo_and_another_text_make_a_branch(saved: Saved) -> None:
    saved.ask("say one", "say two")
    saved.chat.undo()
    assert said(saved.read()) == ["s:Be brief.", "u:say one", "a:one"]
    saved.ask("say other")
    session = saved.read()
    assert said(session)[-2:] == ["u:say other", "a:other"]
    parents = {entry.message.text: entry.parent_id for entry in session.entries}
    assert parents["say two"] == parents["say other"]
    assert "a:two" in everything(session), "the old branch stays"


def test_undo_of_everything(tmp_path: Path) -> None:
    saved = Saved(tmp_path, SessionSettings(model="m"))
    saved.ask("say one")
    saved.chat.undo()
    assert saved.read().head is None
    saved.ask("say two")
    assert said(saved.read()) == ["u:say two", "a:two"]


def test_retry_makes_a_sibling(saved: Saved) -> None:
    saved.ask("say one")
    list(saved.chat.retry(OPTIONS))
    answers = [entry for entry in saved.read().entries if entry.message.role == "assistant"]
    assert len(answers) == 2
    assert answers[0].parent_id == answers[1].parent_id
    assert saved.read().head == answers[1].id


def test_a_failed_turn_is_kept_as_a_branch_and_nothing_more(saved: Saved) -> None:
    saved.ask("say one", "fail half an answer")
    session = saved.read()
    assert said(session) == ["s:Be brief.", "u:say one", "a:one"]
    assert everything(session)[-2:] == ["u:fail half an answer", "a:half an answer"]
    assert kinds(saved.path)[-1] == "head"
    assert not journal_path(saved.path).exists()


def test_a_turn_that_never_began_leaves_its_message_on_a_branch(saved: Saved) -> None:
    saved.ask("say one", "too long", "say two")
    assert said(saved.read()) == ["s:Be brief.", "u:say one", "a:one", "u:say two", "a:two"]
    assert "u:too long" in everything(saved.read())


def test_a_new_chat_is_another_session(saved: Saved) -> None:
    saved.ask("say one")
    first = saved.path
    saved.chat.clear()
    assert saved.path != first
    saved.ask("say two")
    assert said(saved.read()) == ["s:Be brief.", "u:say two", "a:two"]
    assert said(read_session(first))[-1] == "a:one"


def test_going_on(saved: Saved) -> None:
    saved.ask("say one")
    other = saved.again()
    other.ask("say two")
    assert other.path == saved.path
    assert said(other.read()) == ["s:Be brief.", "u:say one", "a:one", "u:say two", "a:two"]
    assert kinds(other.path) == ["session", *["message"] * 5]


def test_going_on_and_taking_back_what_was_said_before(saved: Saved) -> None:
    saved.ask("say one", "say two")
    other = saved.again()
    other.chat.undo()
    assert said(other.read())[-1] == "a:one"
    list(other.chat.retry(OPTIONS))
    assert said(other.read()) == ["s:Be brief.", "u:say one", "a:one"]
    assert everything(other.read()).count("a:one") == 2


def test_another_model_or_sampling_is_a_settings_line(saved: Saved) -> None:
    saved.ask("say one")
    other = saved.again(replace(SETTINGS, model="n", sampling=SamplingOptions(temp=0.5)))
    other.ask("say two", "say three")
    assert kinds(other.path).count("settings") == 1
    session = other.read()
    assert (session.settings.model, session.settings.sampling.temp) == ("n", 0.5)
    assert [entry.model for entry in session.conversation if entry.message.role == "assistant"] == ["m", "n", "n"]


def test_another_system_prompt_is_another_root(saved: Saved) -> None:
    saved.ask("say one")
    other = saved.again(replace(SETTINGS, system="Be long."))
    assert kinds(other.path) == ["session", *["message"] * 3], "nothing is written before something is said"
    other.ask("say two")
    session = other.read()
    assert said(session) == ["s:Be long.", "u:say one", "a:one", "u:say two", "a:two"]
    assert session.settings.system == "Be long."
    assert [entry.message.text for entry in session.entries if entry.parent_id is None] == ["Be brief.", "Be long."]


def test_a_fork_has_its_own_copy(saved: Saved) -> None:
    saved.ask("say one", "say two")
    before = saved.path.read_bytes()
    session = saved.read()
    said_there = [entry for entry in session.answered if entry.message.role != "system"]
    recorder = SessionRecorder(saved.folder, SETTINGS, saved.told.append, said_there, forked_from=session.id)
    history = [entry.message for entry in said_there]
    chat = FakeChat(FakeEngine(), SETTINGS.system, history, recorder)
    chat.undo()
    list(chat.ask(user("say other"), OPTIONS))
    fork = read_session(saved.folder / f"{recorder.session_id}.jsonl")
    assert said(fork) == ["s:Be brief.", "u:say one", "a:one", "u:say other", "a:other"]
    assert fork.forked_from == session.id
    assert saved.path.read_bytes() == before
    kept = [entry.time for entry in fork.entries][1:5]
    assert kept == [entry.time for entry in said_there], "copies keep their times"


# -- programs that die -----------------------------------------------------------------------------------------


def crash(saved: Saved, prompt: str, words: int) -> None:
    """Ask, and let the program end after so many words as a kill would end it: nothing more is called."""
    events = saved.chat.ask(user(prompt), OPTIONS)
    heard = 0
    while heard < words:
        heard += isinstance(next(events), TextDelta | ReasoningDelta)
    os.close(saved.recorder._writer._appender._descriptor or -1)
    saved.recorder._writer._appender._descriptor = None
    kept.append(events)


kept: list[Any] = []
"""Generators that must not be closed, which would tell the recorder."""


def test_a_crash_keeps_what_was_shown(saved: Saved) -> None:
    saved.ask("say one")
    crash(saved, "think hello", 3)
    session = saved.read()
    assert session.unfinished is not None
    assert said(session)[-2:] == ["u:think hello", "a:he"]
    other = Saved(saved.folder)
    other.recorder = SessionRecorder.resume(opened(saved.path), session, SETTINGS, other.told.append)
    assert not journal_path(saved.path).exists()
    resumed = read_session(saved.path)
    assert resumed.conversation == replace_line(session.conversation, resumed.conversation[-1].line)
    assert resumed.unfinished is None
    assert resumed.conversation[-1].message.interrupted
    assert resumed.conversation[-1].message.reasoning == "because"


def replace_line(entries: Any, line: int) -> Any:
    return (*entries[:-1], replace(entries[-1], line=line))


def test_a_crash_before_a_word_keeps_the_message(saved: Saved) -> None:
    saved.ask("say one")
    crash(saved, "say two", 0)
    session = saved.read()
    assert said(session)[-1] == "u:say two"
    assert [entry.message.text for entry in session.answered] == ["Be brief.", "say one", "one"]


def test_a_crash_after_the_answer_was_written_says_it_once(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "remove", lambda self: None)
    saved.ask("say one")
    assert journal_path(saved.path).exists()
    assert said(saved.read()) == ["s:Be brief.", "u:say one", "a:one"]
    assert saved.read().unfinished is None


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_line_costs_that_line_only(saved: Saved, cut: int) -> None:
    saved.ask("say one", "say two")
    whole = saved.path.read_bytes()
    saved.path.write_bytes(whole[:-cut])
    session = saved.read()
    if cut > 1:  # without its newline alone, the line is whole
        assert said(session)[-1] == "u:say two"
        assert [one.why for one in session.skipped] == ["not JSON"]
    saved.recorder.close()
    other = saved.again()
    other.ask("say three")
    assert said(other.read())[-2:] == ["u:say three", "a:three"]


@pytest.mark.parametrize("cut", range(1, 30, 7))
def test_a_torn_journal_keeps_the_words_before(saved: Saved, cut: int) -> None:
    crash(saved, "think hello", 4)
    journal = journal_path(saved.path)
    journal.write_bytes(journal.read_bytes()[:-cut])
    last = saved.read().conversation[-1].message
    assert last.reasoning == "because"
    assert last.text in ("hello", "he", "")


# -- disks that refuse -----------------------------------------------------------------------------------------


class Disk:
    """os.write that takes so many bytes, then is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 10**9
        self._write: Callable[[int, Any], int] = os.write
        monkeypatch.setattr("mlxchat.transcripts.session_appender.os.write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if not self.free:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._write(descriptor, bytes(data[: self.free]))
        self.free -= count
        return count


@pytest.mark.parametrize("free", [0, 10, 200])
def test_a_full_disk_is_told_once_and_made_good_later(saved: Saved, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    saved.ask("say one")
    disk.free = free
    saved.ask("say two", "say three")
    assert [message.text for message in saved.chat.messages][-1] == "three"
    assert len(saved.told) == 1
    assert "No space left on device" in saved.told[0]
    assert saved.recorder.failure is not None
    assert saved.recorder.failure.exit_code == 74
    disk.free = 10**9
    saved.ask("say four")
    assert saved.recorder.failure is None
    session = saved.read()
    assert said(session)[1:] == [f"{a}{b}" for b in ("one", "two", "three", "four") for a in ("u:say ", "a:")]
    assert session.skipped == ()


@pytest.mark.parametrize("free", [0, 10])
def test_a_chat_of_which_nothing_could_be_written_is_not_the_one_to_continue(
    saved: Saved, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Saved(saved.folder)
    older.ask("say one")
    older.recorder.close()
    Disk(monkeypatch).free = free
    saved.ask("say two")
    saved.recorder.close()
    assert saved.recorder.failure is not None
    assert sorted(saved.folder.iterdir()) == [older.path]


def test_a_chat_that_died_before_its_first_line_is_not_the_one_to_continue(saved: Saved) -> None:
    saved.ask("say one")
    (saved.folder / "ffff.jsonl").touch()
    assert SessionStore(saved.folder).newest() == saved.path


def test_a_torn_line_is_no_reason_to_remove_a_session(saved: Saved) -> None:
    saved.folder.joinpath("a.jsonl").write_text('{"type": "session", "harness": "x"}', encoding="utf-8")
    opened(saved.folder / "a.jsonl").close()
    assert (saved.folder / "a.jsonl").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    saved = Saved(tmp_path / "file" / "sessions")
    saved.ask("say one", "think two")
    saved.chat.undo()
    saved.recorder.close()
    assert len(saved.told) == 1
    assert saved.recorder.failure is not None


def test_a_session_that_cannot_be_written_to_any_more(saved: Saved) -> None:
    saved.ask("say one")
    session = saved.read()
    saved.recorder.close()
    saved.path.unlink()
    saved.path.mkdir()
    recorder = SessionRecorder.resume(SessionAppender(saved.path, exists=True), session, SETTINGS, saved.told.append)
    chat = FakeChat(FakeEngine(), SETTINGS.system, [user("say one")], recorder)
    list(chat.ask(user("say two"), OPTIONS))
    assert chat.messages[-1].text == "two"
    assert len(saved.told) == 1
    assert recorder.failure is not None
    recorder.close()


def test_a_session_that_another_program_took_meanwhile(saved: Saved) -> None:
    saved.ask("say one")
    session = saved.read()
    late = SessionRecorder.resume(SessionAppender(saved.path, exists=True), session, SETTINGS, saved.told.append)
    late.asked(3, user("say two"))
    assert "open in another program" in saved.told[0]
    assert said(saved.read())[-1] == "a:one"


def test_a_failure_of_an_earlier_chat_is_not_forgotten(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.free = 100
    saved.ask("say one")
    saved.chat.clear()
    disk.free = 10**9
    saved.ask("say two")
    assert saved.recorder.failure is not None


# -- pictures --------------------------------------------------------------------------------------------------


def test_a_picture_is_kept_once_beside_the_sessions(saved: Saved, tmp_path: Path) -> None:
    (tmp_path / "cat.PNG").write_bytes(b"cat")
    url = f"data:image/png;base64,{base64.b64encode(b'cat').decode()}"
    for source in (str(tmp_path / "cat.PNG"), url, "https://example.org/cat.png", str(tmp_path / "absent.png")):
        saved.recorder.asked(1, Message("user", (ImagePart(source), TextPart("What is it?"))))
    [image] = list((saved.folder / "images").iterdir())
    assert image.read_bytes() == b"cat"
    assert stat.S_IMODE(image.stat().st_mode) == 0o600
    sources = [entry.message.content[0] for entry in saved.read().entries[1:]]
    name = f"images/{image.name}"
    absent = str(tmp_path / "absent.png")
    assert sources == [ImagePart(name), ImagePart(name), ImagePart("https://example.org/cat.png"), ImagePart(absent)]
    located = saved.recorder._writer._images.located(saved.read().entries[1].message)
    assert located.content[0] == ImagePart(str(image))


@pytest.mark.parametrize("fault", ["journal after the word", "no head", "flat"])
def test_planted_faults_show(saved: Saved, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "journal after the word":
        monkeypatch.setattr(SessionRecorder, "heard", lambda self, index, event: None)
        with pytest.raises(AssertionError):
            test_each_word_is_written_before_it_is_shown(saved)
    elif fault == "no head":
        monkeypatch.setattr(SessionRecorder, "_write_head", lambda self: None)
        with pytest.raises(AssertionError):
            test_undo_and_another_text_make_a_branch(saved)
    else:
        monkeypatch.setattr(SessionRecorder, "_parent", lambda self, index: None)
        with pytest.raises(AssertionError):
            test_a_chat_as_it_is_told(saved)


def test_the_reader_of_transcripts_reads_every_branch(saved: Saved) -> None:
    saved.ask("say one", "fail half", "say two")
    saved.chat.undo()
    list(saved.chat.ask(user("say three"), OPTIONS))
    transcript = read_transcript(saved.path)
    [conversation] = transcript.conversations
    assert transcript.skipped == ()
    answers = [request.answer.text for request in conversation.requests if request.answer is not None]
    assert answers == ["one", "half", "two", "three"]
    assert [message.text for message in conversation.requests[-1].messages][-1] == "say three"


class TestBranches:
    def test_there_and_back_writes_where_it_stands_and_nothing_else(self, saved: Saved) -> None:
        saved.ask("say one", "say two")
        lines = saved.path.read_text().count("\n")
        saved.chat.undo()
        saved.chat.redo()
        assert saved.path.read_text().count("\n") == lines + 2
        assert said(saved.read()) == ["s:Be brief.", "u:say one", "a:one", "u:say two", "a:two"]

    def test_messages_said_before_stand_elsewhere_too(self, saved: Saved) -> None:
        saved.ask("say one", "say two")
        saved.chat.drop_oldest(1)
        assert said(saved.read()) == ["s:Be brief.", "u:say two", "a:two"]
        saved.chat.redo()
        saved.ask("say three")
        assert said(saved.read())[1:] == ["u:say one", "a:one", "u:say two", "a:two", "u:say three", "a:three"]
        copies = [entry for entry in saved.read().entries if entry.message.text == "two"]
        assert [entry.model for entry in copies] == ["m", "m"]

    def test_a_branch_of_the_file_is_known_again(self, saved: Saved) -> None:
        saved.ask("say one", "say two")
        saved.chat.undo()
        saved.ask("say other")
        again = saved.again()
        before = len(again.read().entries)
        again.recorder.moved(again.chat.messages[:3])
        assert said(again.read()) == ["s:Be brief.", "u:say one", "a:one"]
        assert len(again.read().entries) == before

    def test_settings_that_change_are_written_at_once(self, saved: Saved) -> None:
        saved.ask("say one")
        other = replace(SETTINGS, sampling=SamplingOptions(temp=0.5))
        saved.recorder.configure(other)
        saved.recorder.configure(other)
        assert saved.read().settings == other
        assert saved.path.read_text().count('"settings"') == 1

    def test_resumed_below_another_system_prompt_it_stands_where_it_stood(self, saved: Saved) -> None:
        saved.ask("say one")
        again = saved.again(replace(SETTINGS, system="Be long."))
        again.recorder.close()
        assert said(saved.read()) == ["s:Be brief.", "u:say one", "a:one"]
