"""Pictures on the command line: what is sent, what is refused before anything is loaded, what a saved chat keeps."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mlxchat.cli import pictures
from mlxchat.cli.pictures import sees_pictures, stage, with_pictures
from mlxchat.cli.run import run
from mlxchat.engine.messages import ImagePart, Message, TextPart
from mlxchat.engine.pictures import open_picture
from mlxchat.errors import DataError, InputError, MlxchatError, UsageError
from mlxchat.transcripts.session_file import read_session
from mlxchat.transcripts.session_images import ImageFolder
from support.picture_files import BLUE, PictureServer, page, png, png_file
from support.run_program import PATIENCE_S, Ended, command, environment, run_program
from support.schemas import validate
from support.scripted import model_folder

pytestmark = pytest.mark.plain


class Home:
    """A home of its own, and the program with the fake engine, whose model `seeing` takes pictures."""

    def __init__(self, folder: Path) -> None:
        self.sessions = folder / "sessions"
        self.sessions.mkdir(parents=True)
        self._environ = {"MLXCHAT_HOME": str(folder)}

    def run(self, *arguments: str, stdin: bytes = b"", model: str = "seeing") -> Ended:
        return run_program("-m", model, *arguments, stdin=stdin, environ=self._environ)

    def messages(self, ended: Ended) -> list[Message]:
        """The messages of the session that a --json run saved, pictures by their path."""
        assert ended.code == 0, ended.err
        value = validate(ended.json)
        session_id = (value.get("turns") or [value])[0]["session_id"]
        saved = read_session(self.sessions / f"{session_id}.jsonl")
        return [ImageFolder(self.sessions).located(entry.message) for entry in saved.conversation]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def sources(message: Message) -> list[str]:
    return [part.source for part in message.content if isinstance(part, ImagePart)]


def colours(message: Message) -> list[bytes]:
    return [open_picture(source).pixels[:3] for source in sources(message)]


def test_pictures_come_before_files_and_words(home: Home, tmp_path: Path) -> None:
    one, two = png_file(tmp_path / "one.png"), png_file(tmp_path / "two.png", BLUE)
    notes = tmp_path / "notes.txt"
    notes.write_text("noted")
    sent, _ = home.messages(home.run("say so", "-f", str(notes), "-i", str(one), "--image", str(two), "--json"))
    assert colours(sent) == [b"\xff\x00\x00", b"\x00\x00\xff"]
    assert [type(part).__name__ for part in sent.content] == ["ImagePart", "ImagePart", "FilePart", "TextPart"]


def test_a_saved_picture_is_kept_once_for_its_owner_and_outlives_its_file(home: Home, tmp_path: Path) -> None:
    path = png_file(tmp_path / "a.png")
    first = home.run("say one", "-i", str(path), "--json")
    home.messages(first)
    home.messages(home.run("say two", "-i", str(path), "--json"))
    [kept] = (home.sessions / "images").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.suffix == ".png"
    png_file(path, BLUE)
    session_id = first.json["session_id"]
    again = home.messages(home.run("-r", session_id, "say three", "--json"))
    assert colours(again[0]) == [b"\xff\x00\x00"]
    assert [message.text for message in again] == ["say one", "one", "say three", "three"]


def test_no_save_keeps_no_picture(home: Home, tmp_path: Path) -> None:
    assert home.run("say so", "-i", str(png_file(tmp_path / "a.png")), "--no-save").code == 0
    assert list(home.sessions.iterdir()) == []


def test_stdin(home: Home) -> None:
    sent, _ = home.messages(home.run("say so", "-i", "-", "--json", stdin=png(BLUE)))
    assert colours(sent) == [b"\x00\x00\xff"]
    assert sent.text == "say so"


def test_a_data_url_and_a_pipe_of_the_shell(home: Home, tmp_path: Path) -> None:
    body = base64.b64encode(png(BLUE)).decode()
    sent, _ = home.messages(home.run("say so", "-i", f"data:image/png;base64,{body}", "--json"))
    assert colours(sent) == [b"\x00\x00\xff"]
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    program = subprocess.Popen(
        command("-m", "seeing", "say so", "-i", str(fifo), "--no-stdin"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({"MLXCHAT_HOME": str(home.sessions.parent)}),
    )
    fifo.write_bytes(png())
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out, err) == (0, b"so\n", b"")


def test_turns_bring_pictures_of_their_own(home: Home, tmp_path: Path) -> None:
    one, two = png_file(tmp_path / "one.png"), png_file(tmp_path / "two.png", BLUE)
    data = "data:image/png;base64," + base64.b64encode(png(BLUE)).decode()
    lines: list[Any] = [
        {"content": "say one"},
        {"content": [{"type": "image", "path": str(one)}, {"type": "text", "text": "say two"}]},
        {
            "content": [
                {"type": "image_url", "image_url": {"url": data}},
                "say three",
                {"type": "image", "path": str(two)},
            ]
        },
    ]
    turns = "".join(json.dumps(line) + "\n" for line in lines).encode()
    said = home.messages(home.run("--turns", "-", "--json", stdin=turns))
    assert [len(sources(message)) for message in said if message.role == "user"] == [0, 1, 2]
    assert colours(said[4]) == [b"\x00\x00\xff"] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (["-i", "absent.png"], 66, "can't read absent.png: No such file or directory"),
        (["-i", "."], 66, ". is a folder"),
        (["-i", "/dev/zero"], 66, "/dev/zero is no file"),
        (["-i", __file__], 65, "test_image_input.py is not a picture"),
        (["-i", "http://127.0.0.1:9/a.png"], 66, "leads to 127.0.0.1, which is not on the public internet"),
        (["-i", "http://127.0.0.1:9/a.png", "--offline"], 2, "--offline forbids fetching"),
        (["-i", "data:image/png;base64,!"], 65, "the data: URL is not base64"),
        (["-i", "-"], 2, "-i - and --no-stdin can't go together"),
        (["-f", "-", "-i", "-"], 2, "-f - and -i - both want stdin"),
        (["-i", "-", "-i", "-"], 2, "-i - and -i - both want stdin"),
    ],
)
def test_what_is_refused(arguments: list[str], code: int, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the model is looked for: there is none of that name."""
    assert run(["say so", "-m", "absent-model", "--no-stdin", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert cause in err.splitlines()[0]
    assert len(err.splitlines()) == 2


def test_what_of_stdin_is_refused(home: Home) -> None:
    ended = home.run("say so", "-i", "-", stdin=b"no picture")
    assert (ended.code, ended.out) == (65, "")
    assert ended.error_lines[0] == "mlxchat: stdin is not a picture"
    ended = home.run("-i", "-", stdin=png())
    assert (ended.code, ended.out) == (2, "")
    assert "the prompt is empty" in ended.err


def test_a_broken_picture_in_json(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(width=64, height=64)[:60])
    ended = home.run("say so", "-i", str(tmp_path / "a.png"), "--json")
    assert ended.code == 65
    assert validate(ended.json)["error"]["code"] == "bad_data"
    assert "a.png is a broken picture" in ended.json["error"]["message"]


class TestTextModels:
    def test_it_is_refused_before_the_model_is_loaded(self, home: Home, tmp_path: Path) -> None:
        path = str(png_file(tmp_path / "a.png"))
        ended = home.run("say so", "-i", path, model="loud")  # says so when it is loaded
        assert (ended.code, ended.out) == (69, "")
        assert ended.error_lines == [
            "mlxchat: loud is a text model and can't see pictures",
            "leave them out, or choose a model with vision (-m)",
        ]
        ended = home.run("say so", "-i", path, "--json", model="loud")
        assert validate(ended.json)["error"]["code"] == "model_unsupported"
        assert list(home.sessions.iterdir()) == []

    def test_so_is_a_chat_that_has_one(self, home: Home, tmp_path: Path) -> None:
        first = home.run("say so", "-i", str(png_file(tmp_path / "a.png")), "--json").json["session_id"]
        ended = run_program("-r", first, "-m", "fake", "more", environ={"MLXCHAT_HOME": str(home.sessions.parent)})
        assert ended.code == 69
        assert "fake is a text model" in ended.err

    def test_with_the_real_program_and_the_weights_out_of_reach(self, tmp_path: Path) -> None:
        """Nothing is loaded: the weights are no weights."""
        folder = tmp_path / "tiny"
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
        (folder / "model.safetensors").write_bytes(b"")
        (folder / "tokenizer.json").write_text("{}")
        ended = run_program("-m", str(folder), "say so", "-i", str(png_file(tmp_path / "a.png")), fake=False)
        assert ended.code == 69
        assert ended.error_lines[0] == f"mlxchat: {folder} is a text model and can't see pictures"

    def test_the_kind_comes_from_the_config(self, tmp_path: Path) -> None:
        folder = model_folder(tmp_path / "tiny")
        assert not sees_pictures(str(folder), offline=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "vision_config": {"hidden_size": 8}}))
        assert sees_pictures(str(folder), offline=True)


def test_a_picture_of_a_saved_chat_that_is_gone_costs_only_itself(home: Home, tmp_path: Path) -> None:
    first = home.run("say one", "-i", str(png_file(tmp_path / "a.png")), "--json").json["session_id"]
    [kept] = (home.sessions / "images").iterdir()
    kept.unlink()
    ended = home.run("-r", first, "say two")
    assert (ended.code, ended.out) == (0, "two\n")
    assert "a picture of this chat is gone, and left out: can't read " in ended.err


def test_the_message_holds_what_was_read_not_where(tmp_path: Path) -> None:
    path = png_file(tmp_path / "a.png")
    staged = stage(str(path))
    path.unlink()
    assert str(staged) == f"{path} (4 × 2)"
    assert open_picture(staged.part.source) == staged.picture


def test_a_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    png_file(tmp_path / "a.png")
    assert stage("~/a.png").name == "~/a.png"
    with pytest.raises(InputError, match=r"can't read ~nobody-of-this-name/a\.png"):
        stage("~nobody-of-this-name/a.png")


def test_a_picture_from_the_web(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam: this machine's own server counts as public."""
    with PictureServer({"/a.png": page(png(BLUE)), "/a.txt": page(b"words")}).running() as server:
        with pytest.raises(InputError, match="not on the public internet"):
            stage(f"{server.url}/a.png")
        real = pictures.download
        monkeypatch.setattr(pictures, "download", lambda url, offline: real(url, offline, lambda address: True))
        assert stage(f"{server.url}/a.png").picture.pixels[:3] == b"\x00\x00\xff"
        with pytest.raises(DataError, match=r"/a\.txt is not a picture"):
            stage(f"{server.url}/a.txt")
        with pytest.raises(UsageError):
            stage(f"{server.url}/a.png", offline=True)


def test_a_message_of_a_turns_file_is_read_whole_or_not(tmp_path: Path) -> None:
    good, absent = ImagePart(str(png_file(tmp_path / "a.png"))), ImagePart(str(tmp_path / "absent.png"))
    read = with_pictures(Message("user", (good, TextPart("what?"))), offline=True)
    assert sources(read)[0].startswith("data:image/png;base64,")
    with pytest.raises(MlxchatError):
        with_pictures(Message("user", (good, absent)), offline=True)
