"""The folder of sessions: found by id, by age, by words; removed with the pictures that nobody else names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mlxchat.engine.messages import ImagePart, Message, TextPart
from mlxchat.engine.options import SamplingOptions, ThinkingOptions
from mlxchat.errors import DataError, InputError, OutputError, UsageError
from mlxchat.transcripts.journal import journal_path
from mlxchat.transcripts.session_appender import SessionBusy, is_open
from mlxchat.transcripts.session_export import export
from mlxchat.transcripts.session_file import read_session
from mlxchat.transcripts.session_images import ImageFolder
from mlxchat.transcripts.session_recorder import SessionRecorder
from mlxchat.transcripts.session_search import search
from mlxchat.transcripts.session_settings import SessionSettings, refused_fields
from mlxchat.transcripts.session_store import SessionStore
from mlxchat.transcripts.writing import OUTPUT_FORMATS, OutputFormat
from support.sessions import opened

pytestmark = pytest.mark.plain

HEADER = {"type": "session", "harness": "mlxchat", "id": "a"}


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    folder = tmp_path / "sessions"
    folder.mkdir()
    return SessionStore(folder)


def write(store: SessionStore, session_id: str, /, *messages: str, age: float = 0, **header: object) -> Path:
    """A linear session without ids, as another program might have written it, last used `age` seconds ago."""
    path = store.folder / f"{session_id}.jsonl"
    lines = [json.dumps({**HEADER, **header})]
    for at, text in enumerate(messages):
        role = "assistant" if at % 2 else "user"
        lines.append(json.dumps({"type": "message", "message": {"role": role, "content": text}}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def test_a_session_is_found_by_the_start_of_its_id(store: SessionStore) -> None:
    paths = [write(store, name) for name in ("abc1", "abd2", "abd23")]
    assert store.find("abc") == paths[0]
    assert store.find("ABC1 ") == paths[0]
    assert store.find("abd2") == paths[1], "a whole id is no start of a longer one"
    for prefix in ("", "zz", "../abc1", "abc1.jsonl"):
        with pytest.raises(InputError):
            store.find(prefix)
    with pytest.raises(UsageError, match="3 sessions begin"):
        store.find("ab")


def test_the_newest_comes_first(store: SessionStore) -> None:
    with pytest.raises(InputError, match="no saved session to continue"):
        store.newest()
    write(store, "old", age=500)
    new, middle = write(store, "new", age=5), write(store, "middle", age=50)
    assert [path.stem for path in store.paths()] == ["new", "middle", "old"]
    journal_path(middle).write_text("", encoding="utf-8")
    assert store.newest() == middle, "an answer is being spoken there"
    assert new in store.paths()


def test_a_plain_session_of_another_program_is_linear(store: SessionStore) -> None:
    session = read_session(write(store, "a", "Hi.", "Ho.", "He."))
    assert [entry.message.text for entry in session.conversation] == ["Hi.", "Ho.", "He."]
    assert (session.turns, len(session.answered)) == (2, 2)
    assert session.tokens == 2, "without counts: a guess"


@pytest.mark.parametrize("text", ["", "\n", "[]\n", '{"type": "message"}\n', '{"type": "session"}\n', "\0\0", "\xff"])
def test_a_file_that_is_no_session(store: SessionStore, text: str) -> None:
    path = store.folder / "a.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="line 1"):
        read_session(path)
    assert len(store.readable()[1]) == 1
    with pytest.raises(InputError):
        read_session(store.folder / "absent.jsonl")


def test_lines_that_cannot_be_used_are_named(store: SessionStore) -> None:
    path = write(store, "a", "Hi.")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type": "message"}\nrubbish\n5\n{"type": "later"}\n{"type": "head", "messageId": "gone"}\n')
        file.write('{"type": "head", "messageId": ["gone"]}\n')
    session = read_session(path)
    assert [(one.line, one.why) for one in session.skipped] == [
        (3, "a message line without a message"),
        (4, "not JSON"),
        (5, "no JSON object"),
        (7, "no message is called 'gone'"),
        (8, "no message is called ['gone']"),
    ]
    assert [entry.message.text for entry in session.conversation] == ["Hi."]


def test_numbers_too_long_for_any_setting_are_left_out(store: SessionStore) -> None:
    sampling = {"seed": 10**400, "top_k": 10**30, "temp": 10**400, "max_tokens": 5}
    settings = read_session(write(store, "a", "Hi.", sampling=sampling)).settings
    assert settings.sampling == SamplingOptions(max_tokens=5)


@pytest.mark.parametrize("form", OUTPUT_FORMATS)
def test_half_a_character_is_replaced(store: SessionStore, form: OutputFormat) -> None:
    """Neither a tokenizer nor a stream takes one."""
    session = read_session(write(store, "a", "He\ud83dllo", "So\udc00."))
    assert [entry.message.text for entry in session.conversation] == ["He\ufffdllo", "So\ufffd."]
    export(session, form).encode()


def test_a_ring_of_parents_ends(store: SessionStore) -> None:
    path = write(store, "a")
    lines = [{"type": "message", "id": a, "parentId": b, "message": {"role": "user"}} for a, b in ("xy", "yx")]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))
    assert len(read_session(path).conversation) == 2


# -- one at a time ---------------------------------------------------------------------------------------------


def test_one_program_at_a_time(store: SessionStore) -> None:
    path = write(store, "a", "Hi.", "Ho.")
    assert not is_open(path)
    first = opened(path)
    assert is_open(path)
    with pytest.raises(SessionBusy, match="a is open in another program"):
        opened(path)
    assert store.remove([path]).busy == ("a",)
    store.rename(path, "Named")
    first.append({"type": "head", "messageId": None})
    assert (read_session(path).name, read_session(path).head) == ("Named", None)
    first.close()
    opened(path).close()
    assert not is_open(path)
    assert not is_open(store.folder / "absent.jsonl")


def test_a_session_that_was_removed_while_it_was_opened(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(store, "a", "Hi.")
    monkeypatch.setattr("mlxchat.transcripts.session_appender.lock", lambda descriptor, path: path.unlink())
    with pytest.raises(FileNotFoundError):
        opened(path)


def test_a_name_is_appended_on_a_line_of_its_own(store: SessionStore) -> None:
    path = write(store, "a", "Hi.")
    path.write_bytes(path.read_bytes() + b'{"torn": ')
    store.rename(path, "One")
    store.rename(path, "")
    assert read_session(path).name is None
    store.rename(path, "Two")
    assert read_session(path).title == "Two"
    with pytest.raises(OutputError):
        store.rename(store.folder / "absent.jsonl", "x")


# -- removal ---------------------------------------------------------------------------------------------------


def with_picture(store: SessionStore, tmp_path: Path, *words: str) -> Path:
    """A session that names a picture for each word."""
    recorder = SessionRecorder(store.folder, SessionSettings(), lambda line: None)
    for at, word in enumerate(words):
        (tmp_path / word).write_bytes(word.encode())
        recorder.asked(at, Message("user", (ImagePart(str(tmp_path / word)), TextPart(word))))
    recorder.close()
    return store.folder / f"{recorder.session_id}.jsonl"


def test_a_picture_goes_with_the_last_session_that_names_it(store: SessionStore, tmp_path: Path) -> None:
    one, two = with_picture(store, tmp_path, "cat", "dog"), with_picture(store, tmp_path, "cat")
    images = store.folder / "images"
    assert len(list(images.iterdir())) == 2
    gone = store.remove([one])
    assert (gone.removed, gone.images) == ((one.stem,), 1)
    assert [image.read_bytes() for image in images.iterdir()] == [b"cat"]
    assert store.remove([two]).images == 1
    assert list(images.iterdir()) == []


def test_pictures_stay_while_a_session_cannot_be_read(store: SessionStore, tmp_path: Path) -> None:
    one = with_picture(store, tmp_path, "cat")
    (store.folder / "broken.jsonl").write_text("rubbish", encoding="utf-8")
    assert store.remove([one]).images == 0
    assert len(list((store.folder / "images").iterdir())) == 1


def test_a_name_that_leaves_the_folder_is_no_picture_of_ours(store: SessionStore) -> None:
    images = ImageFolder(store.folder)
    message = Message("user", (ImagePart("images/../../etc/passwd"), ImagePart("images/"), ImagePart("images/a.png")))
    assert images.sources(message) == {"images/a.png"}


def test_planted_pictures_removed_too_early_show(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFolder, "sources", lambda self, message: set())
    with pytest.raises(AssertionError):
        test_a_picture_goes_with_the_last_session_that_names_it(store, tmp_path)


def test_a_journal_goes_with_its_session(store: SessionStore) -> None:
    path = write(store, "a")
    journal_path(path).write_text("", encoding="utf-8")
    store.remove([path])
    assert list(store.folder.iterdir()) == []


# -- words -----------------------------------------------------------------------------------------------------


def test_words_are_found_on_any_branch_and_in_names(store: SessionStore) -> None:
    long = "x " * 60 + "the\nNEEDLE here" + " y" * 60
    write(store, "a", "Hi.", long, name="A needle's tale")
    write(store, "b", "Nothing.")
    found = list(search(store.readable()[0], "the  needle"))
    assert [(one.session.id, one.role) for one in found] == [("a", "assistant")]
    assert "the NEEDLE here" in found[0].excerpt
    assert found[0].excerpt.startswith("…")
    assert len(found[0].excerpt) < 100
    assert [one.role for one in search(store.readable()[0], "needle")] == ["name", "assistant"]


# -- settings --------------------------------------------------------------------------------------------------


def test_settings_come_back() -> None:
    sampling = SamplingOptions(0.5, 0.9, 40, 0.1, 7, 99, ("END",), {"repetition_penalty": 1.1})
    settings = SessionSettings("m", "Be brief.", "t", sampling, ThinkingOptions(True, 64))
    assert SessionSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert SessionSettings.from_json(SessionSettings().to_json()) == SessionSettings()


@pytest.mark.parametrize(
    "header",
    [
        {"model": 5, "system": ["x"], "template": {}, "sampling": "hot", "thinking": 1},
        {"sampling": {"temp": -1, "top_p": 2, "top_k": 1.5, "min_p": True, "seed": "x", "max_tokens": 0}},
        {"sampling": {"temp": float("nan"), "stop": "END", "extra": {"tools": ["rm"], "x": "y"}}},
        {"thinking": {"enabled": "yes", "budget": -4}},
        {"tools": [], "editor": "rm -rf", "cache_dir": "/", "allow_tools": ["*"], "mcp": {}},
    ],
)
def test_what_a_header_may_not_say_changes_nothing(header: dict[str, object]) -> None:
    assert SessionSettings.from_json(header) == SessionSettings()


def test_what_a_header_may_not_set_is_named() -> None:
    names = ["allow_tools", "cache_dir", "editor", "mcp", "tools"]
    assert refused_fields({**HEADER, **dict.fromkeys(names), "model": "m", "timestamp": 1}) == names


# -- export ----------------------------------------------------------------------------------------------------


def test_nothing_said_is_nothing_to_export(store: SessionStore) -> None:
    with pytest.raises(DataError, match="nothing is said in a"):
        export(read_session(write(store, "a")), "markdown")


@pytest.mark.parametrize("form", OUTPUT_FORMATS)
def test_an_export_has_every_word_of_the_conversation_and_no_more(store: SessionStore, form: OutputFormat) -> None:
    path = write(store, "a", "Hi.", "```code```", "Undone.")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"type": "head", "messageId": "line-3"}\n')
    text = export(read_session(path), form)
    assert "Hi." in text
    assert "```code```" in text
    assert "Undone." not in text
    assert text.endswith("\n")


def test_an_exported_trace_is_read_again(store: SessionStore, tmp_path: Path) -> None:
    session = read_session(write(store, "a", "Hi.", "Ho.", name="N", model="m"))
    other = tmp_path / "b.jsonl"
    other.write_text(export(session, "sts"), encoding="utf-8")
    again = read_session(other)
    assert [entry.message for entry in again.conversation] == [entry.message for entry in session.conversation]
    assert (again.name, again.settings.model) == ("N", "m")


def test_an_openai_export_carries_its_pictures(store: SessionStore, tmp_path: Path) -> None:
    session = read_session(with_picture(store, tmp_path, "cat.png"))
    [message] = json.loads(export(session, "openai"))["messages"]
    assert message["content"][0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,Y2F0LnBuZw=="}}
