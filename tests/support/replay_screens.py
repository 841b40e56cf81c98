"""What `replay` prints for rows made by hand: `python tests/support/replay_screens.py` writes the golden screens.

Look at them before they are committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1]) if __name__ == "__main__" else sys.path[0]

from mlxchat.cli.replay_table import Line, Table  # noqa: E402
from mlxchat.cli.replay_words import Subject, costs, heading, summary  # noqa: E402
from mlxchat.transcripts.heading import Coming, Share  # noqa: E402
from mlxchat.transcripts.model import Skipped  # noqa: E402
from support.replays import ANSI, result, transcript  # noqa: E402

GOLDEN = Path(__file__).resolve().parents[1] / "cli" / "golden"
WIDTHS = (60, 200)


def screen(width: int) -> str:
    """Everything that a replay prints, at a width, without colour."""
    made = result()
    planned = [one.planned for one in made.rows]
    skipped = (Skipped(3, f"not JSON {ANSI}"), Skipped(9, f"not JSON {ANSI}"))
    read = transcript(missing=("system prompt", "reasoning (encrypted)"), skipped=skipped)
    jobs = [one.job for one in planned]
    subject = Subject(read, jobs, "smollm2", "chatml-think", 8192, ["tool schemas"])
    share = Share(80, 2000, read.missing)
    lines = [*heading(subject, share, Coming.of(planned, 150.0), width)]
    table = Table(width, compared=True, recorded=True)
    lines += [table.head(), *(line for one in made.rows for line in table.rows(one))]
    lines += [*summary(made, table), *costs(made.rows, width, verbose=True)]
    return "".join(f"{text(line)}\n" for line in lines)


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def main() -> None:
    for width in WIDTHS:
        (GOLDEN / f"replay_{width}.txt").write_text(screen(width), encoding="utf-8")


if __name__ == "__main__":
    main()
