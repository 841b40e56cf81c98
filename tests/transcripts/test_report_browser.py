"""The report in a real browser: what is in the document once it has loaded, and that it can be seen and printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlxchat.transcripts.report import page
from support.browser import dom, find, picture, printed
from support.replays import SCRIPT, result, row, transcript

pytestmark = [pytest.mark.exact, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> str:
    found = find()
    if found is None:
        pytest.skip("no chromium on this machine")
    return found


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    title = f"<img src=x onerror=\"document.title='owned'\">{SCRIPT}"
    rows = [row(n, title=title, baseline_ms=900.0) for n in (1, 2, 3)]
    file.write_text(page(transcript(), "smollm2", result(rows), with_text=True), encoding="utf-8")
    return file


def test_text_stays_text_in_the_document(browser: str, report: Path, tmp_path: Path) -> None:
    seen = dom(browser, report, tmp_path)
    assert "<title>Replay of trace.jsonl</title>" in seen
    assert "<script" not in seen
    assert "<img" not in seen
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in seen
    assert seen.count("<svg") == 5


def test_planted_text_that_is_not_escaped_becomes_an_element(browser: str, report: Path, tmp_path: Path) -> None:
    report.write_text(report.read_text().replace("&lt;img", "<img").replace("onerror=&quot;", 'onerror="'))
    assert "<img" in dom(browser, report, tmp_path)


def test_it_can_be_seen_in_light_and_dark_and_printed(browser: str, report: Path, tmp_path: Path) -> None:
    light, dark = (picture(browser, report, tmp_path, scheme).read_bytes() for scheme in ("light", "dark"))
    assert light[:8] == dark[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(len(light), len(dark)) > 20_000, "more than a blank page"
    assert light != dark
    assert printed(browser, report, tmp_path).read_bytes().startswith(b"%PDF")
