"""A page in Debian's chromium, headless: its DOM and its picture, light, dark and in print.

`python tests/support/browser.py FOLDER` writes the report of the hand-made rows and its pictures there, to look at.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1]) if __name__ == "__main__" else sys.path[0]

NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
_SCHEMES = {"dark": "0", "light": "1"}
PATIENCE_S = 120


def find() -> str | None:
    """The browser's path, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def run(browser: str, page: Path, work: Path, *flags: str) -> str:
    """The browser on a page, with a profile of its own; what it printed."""
    command = [browser, *_QUIET, f"--user-data-dir={work / 'profile'}", *flags, page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    return done.stdout.decode()


def dom(browser: str, page: Path, work: Path) -> str:
    """The document after everything on the page has run."""
    return run(browser, page, work, "--dump-dom")


def picture(browser: str, page: Path, work: Path, scheme: str, size: tuple[int, int] = (1100, 2150)) -> Path:
    """A screenshot as PNG; scheme: light or dark."""
    out = work / f"{page.stem}-{scheme}.png"
    width, height = size
    settings = f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}"
    run(browser, page, work, f"--screenshot={out}", f"--window-size={width},{height}", settings)
    return out


def printed(browser: str, page: Path, work: Path) -> Path:
    """The page on paper, as PDF."""
    out = work / f"{page.stem}.pdf"
    run(browser, page, work, f"--print-to-pdf={out}", "--no-pdf-header-footer")
    return out


def main(folder: Path) -> None:
    from mlxchat.transcripts.report import page
    from support.replays import result, transcript

    browser = find()
    if browser is None:
        raise SystemExit("there is no chromium here")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.html"
    file.write_text(page(transcript(), "smollm2", result(), with_text=True), encoding="utf-8")
    for scheme in _SCHEMES:
        print(picture(browser, file, folder, scheme))
    print(printed(browser, file, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
