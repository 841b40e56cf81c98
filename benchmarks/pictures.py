"""Draws the pictures in docs/pictures: real sessions of the program in a pseudo terminal, as SVG.

    python benchmarks/pictures.py [NAME …]

The model is a tiny one of random weights and its words come from a script; what it reuses and prefills is real.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from rich.console import Console
from rich.text import Text
from support.scripted import Reply, environment, model_folder, write_script
from support.terminal import CTRL_O, Terminal

FOLDER = ROOT / "docs" / "pictures"
ROWS, COLUMNS = 32, 92

TIDES = """\
<think>
The question is about tides. There are usually two high tides a day.
The Moon is what matters most, and the Sun helps it twice a month.
I should answer with a short list, and a table of the two kinds.
</think>

## Why there are tides

The **Moon** pulls at the near side of the Earth more than at the far side, so the sea rises on *both*:

1. where the Moon is, since the water is pulled away from the Earth
2. on the other side, since the Earth is pulled away from the water

| tide | when | range |
|:-----|:-----|------:|
| spring | new and full moon | large |
| neap | half moon | small |"""
CODE = """\
<think>
A line of Python is enough.
</think>

```python
def is_spring(age_days: float) -> bool:
    return age_days % 14.77 < 3.7   # half a month from new moon to full
```"""


class Session:
    """One conversation that is drawn."""

    def __init__(self, work: Path, *replies: Reply) -> None:
        home = work / "home"
        (home / "sessions").mkdir(parents=True)
        model = model_folder(work / "tiny-qwen3")
        script = write_script(work / "script.jsonl", *replies)
        arguments = ["-m", "mlxchat", "-m", str(model), "--offline", "--no-save", "--cache-dir", str(work)]
        given = {**environment(home, script=script), "MLXCHAT_BLAS": os.environ.get("MLXCHAT_BLAS", "")}
        self.terminal = Terminal(arguments, given, rows=ROWS, columns=COLUMNS)

    def ask(self, question: str) -> None:
        """One turn, to the prompt after it."""
        self.terminal.wait_for_prompt()
        self.terminal.line(question)
        self.terminal.wait_for(r"ctx \d+ %\n>\Z", after=question)

    def draw(self, name: str) -> None:
        """What is on the screen now, as docs/pictures/NAME.svg."""
        console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115, PTH123
        console.print(coloured(self.terminal))
        svg = console.export_svg(title="mlxchat", unique_id=f"mlxchat-{name}")
        svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # a picture fetches nothing
        (FOLDER / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.split("\n")), encoding="utf-8")
        console.file.close()


def coloured(terminal: Terminal) -> Text:
    """The screen with its colours, without the empty rows at its end."""
    rows = [Text.assemble(*((cell.data, cell.style) for cell in row)) for row in terminal.cells]
    while rows and not rows[-1].plain.strip():
        rows.pop()
    return Text("\n").join(rows)


def answers(session: Session) -> None:
    """A rendered answer, and a second turn that goes back past the first one's reasoning."""
    session.ask("Why are there tides?")
    session.ask("When is a spring tide, in Python?")
    session.draw("answers")


def reasoning(session: Session) -> None:
    """The folded reasoning, printed again."""
    session.ask("Why are there tides?")
    session.terminal.send(CTRL_O)
    session.terminal.wait_for(r"(?m)^I should answer with a short list.*\n>\Z")
    session.draw("reasoning")


PICTURES: dict[str, Callable[[Session], None]] = {"answers": answers, "reasoning": reasoning}


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            session = Session(Path(folder), TIDES, CODE)
            with session.terminal:
                PICTURES[name](session)
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
