"""Files as they come: compressed, cut off, broken, of no known format; and folders of them."""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path

import pytest
from mlxchat.errors import DataError, InputError, UsageError
from mlxchat.transcripts import archives, folders, json_lines, unpacking
from mlxchat.transcripts.reading import read
from support.transcripts import FIXTURES, counts, fixture

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:
    from backports import zstd
    from backports.zstd import zipfile

pytestmark = pytest.mark.plain

LINES = (FIXTURES / "openai_messages.jsonl").read_bytes()


def put(folder: Path, data: bytes, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def eval_log(path: Path, samples: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    header = json.loads((FIXTURES / "inspect.json").read_text())
    del header["samples"]
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, data in samples.items():
            archive.writestr(f"samples/{name}", data)
    return path


def inspect_samples() -> dict[str, bytes]:
    samples = json.loads((FIXTURES / "inspect.json").read_text())["samples"]
    return {f"{sample['id']}_epoch_1.json": json.dumps(sample).encode() for sample in samples}


class TestCompressed:
    def test_zstd(self, tmp_path: Path) -> None:
        path = put(tmp_path, zstd.compress(LINES), "t.jsonl.zst")
        assert counts(read(path)) == counts(fixture("openai_messages.jsonl"))

    def test_zstd_of_several_frames(self, tmp_path: Path) -> None:
        half = LINES.index(b"\n") + 1
        path = put(tmp_path, zstd.compress(LINES[:half]) + zstd.compress(LINES[half:]), "t.zst")
        assert counts(read(path)) == counts(fixture("openai_messages.jsonl"))

    def test_a_cut_off_stream_gives_what_it_holds(self, tmp_path: Path) -> None:
        noise = [{"role": "user", "content": os.urandom(3000).hex()} for _ in range(100)]
        packed = zstd.compress("".join(json.dumps(line) + "\n" for line in noise).encode())
        transcript = read(put(tmp_path, packed[: len(packed) // 2], "t.zst"), "openai")
        assert 0 < counts(transcript).messages < 100
        assert "broken from here on" in transcript.skipped[-1].why

    @pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
    def test_an_eval_archive(self, tmp_path: Path, compression: int) -> None:
        path = eval_log(tmp_path / "log.eval", inspect_samples(), compression)
        assert counts(read(path)) == counts(fixture("inspect.json"))

    def test_a_broken_sample_is_counted(self, tmp_path: Path) -> None:
        samples = {**inspect_samples(), "q0.json": b"{broken", "q00.json": b"[1]"}
        transcript = read(eval_log(tmp_path / "log.eval", samples))
        assert counts(transcript).conversations == 3
        assert [line.why for line in transcript.skipped[:2]] == [
            "samples/q0.json: it is not JSON (Expecting property name enclosed in double quotes)",
            "samples/q00.json is no JSON object",
        ]

    def test_other_archives_are_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("a.txt", "x")
        with pytest.raises(DataError, match="no Inspect AI log"):
            read(tmp_path / "a.zip")
        with pytest.raises(DataError, match="broken zip archive"):
            read(put(tmp_path, b"PK\x03\x04 and no more", "b.zip"))

    def test_unpacking_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bomb = put(tmp_path, zstd.compress(LINES + b" " * 1_000_000), "t.zst")
        assert counts(read(bomb)).messages == 5
        monkeypatch.setattr(unpacking, "MOST_UNPACKED", 500_000)
        with pytest.raises(unpacking.TooMuch, match="unpacks to more than"):
            read(bomb)

    def test_an_archive_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = eval_log(tmp_path / "log.eval", inspect_samples())
        monkeypatch.setattr(archives, "LARGEST_SAMPLE", 100)
        with pytest.raises(unpacking.TooMuch):
            read(path)
        monkeypatch.setattr(archives, "MOST_UNPACKED", 1000)
        with pytest.raises(unpacking.TooMuch):
            read(path)
        monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
        with pytest.raises(DataError, match="more than 2 members"):
            read(path)

    def test_what_an_archive_says_of_its_sizes_is_not_believed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = eval_log(tmp_path / "log.eval", {"q.json": b" " * 100_000})
        packed, size = path.read_bytes(), (100_000).to_bytes(4, "little")
        assert packed.count(size) == 2  # before the member, and in the directory at the end
        path.write_bytes(packed.replace(size, (5).to_bytes(4, "little")))
        monkeypatch.setattr(archives, "LARGEST_SAMPLE", 1000)
        with pytest.raises(DataError):
            read(path)


class TestLines:
    def test_a_cut_off_last_line_is_tolerated(self, tmp_path: Path) -> None:
        transcript = read(put(tmp_path, LINES[:-10]))
        assert counts(transcript).messages == 4
        assert [(line.line, line.why) for line in transcript.skipped] == [(5, "it is cut off")]

    def test_malformed_lines_are_counted_and_named(self, tmp_path: Path) -> None:
        bad = b'{"role": \n\n17\n"words"\n\xff\xfe{}\nnull\n[]\n' + b"[" * 300 + b"]" * 300 + b"\n"
        transcript = read(put(tmp_path, LINES + bad))
        assert counts(transcript).messages == 5
        assert [(line.line, line.why) for line in transcript.skipped] == [
            (6, "it is not JSON (Expecting value)"),
            (8, "it is no JSON object"),
            (9, "it is no JSON object"),
            (10, "it is not UTF-8"),
            (11, "it is no JSON object"),
            (12, "it is no JSON object"),
            (13, "it is nested more than 200 deep"),
        ]

    def test_the_first_line_may_be_the_bad_one(self, tmp_path: Path) -> None:
        transcript = read(put(tmp_path, b'{"role"\n' + LINES))
        assert counts(transcript).messages == 5
        assert [line.line for line in transcript.skipped] == [1]
        assert transcript.skipped[0].why == "it is not JSON (Expecting ':' delimiter)"

    def test_a_line_that_is_too_long_is_skipped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_lines, "LONGEST_LINE", 200)
        long = json.dumps({"role": "user", "content": "x" * 1000}).encode() + b"\n"
        transcript = read(put(tmp_path, LINES[: LINES.index(b"\n") + 1] + long + LINES[LINES.index(b"\n") + 1 :]))
        assert counts(transcript).messages == 5
        assert [line.line for line in transcript.skipped] == [2]

    def test_brackets_in_text_are_no_nesting(self, tmp_path: Path) -> None:
        line = json.dumps({"role": "user", "content": "[" * 500 + '"{'}).encode() + b"\n"
        assert counts(read(put(tmp_path, line + LINES))).messages == 6

    def test_a_byte_order_mark_and_half_characters(self, tmp_path: Path) -> None:
        half = b'{"role": "user", "content": "a\\ud800b"}\n{"role": "user", "content": "\\ud83d\\ude00"}\n'
        entries = read(put(tmp_path, b"\xef\xbb\xbf" + LINES + half)).conversations[0].entries
        assert [entry.message.text for entry in entries[-2:]] == ["a\ufffdb", "😀"]

    def test_carriage_returns_and_blank_lines(self, tmp_path: Path) -> None:
        assert counts(read(put(tmp_path, LINES.replace(b"\n", b"\r\n\r\n")))).messages == 5

    def test_an_array_of_rows_over_many_lines(self, tmp_path: Path) -> None:
        rows = [json.loads(line) for line in (FIXTURES / "openai_conversations.jsonl").read_text().splitlines()]
        for name, text in (("a.json", json.dumps(rows, indent=2)), ("b.json", json.dumps(rows))):
            assert counts(read(put(tmp_path, text.encode(), name))) == counts(fixture("openai_conversations.jsonl"))

    def test_a_document_that_is_too_large_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_lines, "LARGEST_DOCUMENT", 1000)
        with pytest.raises(DataError, match="one JSON value of more than"):
            read(FIXTURES / "atif.json")

    def test_lines_are_streamed(self, tmp_path: Path) -> None:
        """The reader never asks for more of the file than a line."""

        asked: list[int] = []

        class Stream:
            def readline(self, size: int) -> bytes:
                asked.append(size)
                return LINES[: LINES.index(b"\n") + 1] if len(asked) < 100 else b""

        records = json_lines.JsonRecords(Stream(), "s")  # type: ignore[arg-type]
        next(iter(records))
        assert asked == [json_lines.LONGEST_LINE + 1] * 2


class TestRefused:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"can't read .*none\.jsonl: No such file") as caught:
            read(tmp_path / "none.jsonl")
        assert caught.value.exit_code == 66

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "t.jsonl, line 1: the file is empty"),
            (b"\n\nhello\n", "t.jsonl, line 3: it is not JSON"),
            (b'{"a": [1,\n2,\n}\n', "t.jsonl, line 3: it is not JSON"),
            (b'\n{"colour": 1, "shape": 2}\n', r"line 2: no transcript format known here \(fields: colour, shape\)"),
            (b'{"role": "elf", "content": "x"}\n', "line 1: a message with the role 'elf'; nothing else in it"),
        ],
    )
    def test_an_unreadable_file_is_named_with_the_line(self, tmp_path: Path, data: bytes, why: str) -> None:
        with pytest.raises(DataError, match=why) as caught:
            read(put(tmp_path, data))
        assert caught.value.exit_code == 65
        assert caught.value.hint

    def test_the_wrong_format_by_name(self) -> None:
        with pytest.raises(DataError, match="nothing else in it can be read as codex"):
            read(FIXTURES / "openai_messages.jsonl", "codex")

    def test_an_unknown_format_by_name(self) -> None:
        with pytest.raises(UsageError, match="no transcript format is called 'word'"):
            read(FIXTURES / "openai_messages.jsonl", "word")


class TestFolders:
    def test_all_transcripts_of_a_folder(self) -> None:
        transcript = read(FIXTURES)
        files = {conversation.file for conversation in transcript.conversations}
        assert {"claude/5f2c.jsonl", "codex/2026/03/01/rollout-a.jsonl", "sts.jsonl"} <= files
        assert "+".join(sorted(set(transcript.format.split("+")))) == transcript.format
        ids = [conversation.id for conversation in transcript.conversations]
        assert len(ids) == len(set(ids))

    def test_codex_date_folders_with_packed_files(self, tmp_path: Path) -> None:
        for path in (FIXTURES / "codex/2026/03/01").iterdir():
            day = tmp_path / "2026" / "03" / path.stem[-1]
            day.mkdir(parents=True)
            put(day, zstd.compress(path.read_bytes()), f"{path.name}.zst")
        assert counts(read(tmp_path)) == counts(fixture("codex"))

    def test_a_file_that_is_no_transcript_is_counted(self, tmp_path: Path) -> None:
        put(tmp_path, LINES, "good.jsonl")
        put(tmp_path, b'{"settings": true}', "other.json")
        put(tmp_path, b"words", "read.me")
        transcript = read(tmp_path)
        assert counts(transcript).messages == 5
        assert [(line.file, line.line) for line in transcript.skipped] == [("other.json", 0)]

    def test_the_same_name_twice_stays_two_conversations(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            put(tmp_path / name, LINES)
        assert [c.id for c in read(tmp_path).conversations] == ["t", "t (b/t.jsonl)"]

    def test_a_folder_without_any(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no transcript in"):
            read(tmp_path)

    def test_a_folder_of_too_many(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(tmp_path, LINES)
        monkeypatch.setattr(folders, "MOST_FILES", 0)
        with pytest.raises(DataError, match="holds more than 0 transcripts"):
            read(tmp_path)

    def test_parents_in_a_circle_are_kept(self, tmp_path: Path) -> None:
        header = '{"type": "session", "harness": "h", "id": "%s", "kind": "subagent", "parent": "%s"}\n'
        line = '{"type": "message", "message": {"role": "user", "content": "x"}}\n'
        for name, parent in (("a", "b"), ("b", "a")):
            put(tmp_path, (header % (name, parent) + line).encode(), f"{name}.jsonl")
        assert [conversation.id for conversation in read(tmp_path).conversations] == ["a", "b"]


def test_zlib_is_what_zip_members_break_with() -> None:
    assert zlib.error in unpacking.BROKEN
