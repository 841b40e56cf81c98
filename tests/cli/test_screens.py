"""What a conversation looks like on terminals of several sizes and kinds, and what its keys do there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from support.run_program import PROGRAM, environment
from support.screens import same_screen
from support.terminal import CTRL_C, CTRL_D, CTRL_J, CTRL_O, ENTER, UP, Terminal

pytestmark = pytest.mark.plain

CTRL_L, CTRL_R, CTRL_X_CTRL_E, BACKSPACE = "\x0c", "\x12", "\x18\x05", "\x7f"
ANSWER = """\
@prefill 1000 4000 1000
@wait bar
@prefill 3048 4000 1000
@wait read
@reason First I look at the question, which is longer than sixty columns are wide.
@reason Then I look at nothing else.
@wait reasoned
# Rivers

The **longest** rivers, by `length`, in a paragraph that is longer than sixty columns are wide:

1. the Nile, of which some say that it is the longest river of all that there are on this planet
2. the Amazon
   - in Brazil
   - in Peru

| river | kilometres |
|:------|-----------:|
| Nile | 6,650 |
| Amazon | 6,400 |

```python
def longest(rivers: dict[str, int]) -> str:
    return max(rivers, key=rivers.get)
```

> A quotation
@wait half
that goes on, [with a link](https://example.org/rivers).
"""


def pasted(lines: int) -> str:
    return "\x1b[200~" + "\n".join(f"line {n}" for n in range(lines)) + "\x1b[201~"


class Stage:
    """One terminal, and a script for the fake engine beside it."""

    def __init__(self, folder: Path, *arguments: str, size: tuple[int, int] = (40, 120), term: str = "", **more: str):
        self._folder = folder
        self.terminal = Terminal(
            [str(PROGRAM), *arguments],
            {**environment(), "MLXCHAT_HOME": str(folder / "home"), **more},
            rows=size[0],
            columns=size[1],
            term=term or "xterm-256color",
        )

    def play(self, script: str) -> None:
        (self._folder / "p").write_text(script.rstrip("\n"), encoding="utf-8")
        self.terminal.line(f"play {self._folder / 'p'}")

    def go_on(self, name: str) -> None:
        (self._folder / name).touch()

    def __enter__(self) -> Stage:
        self.terminal.__enter__()
        self.terminal.wait_for_prompt()
        return self

    def __exit__(self, *error: object) -> None:
        self.terminal.__exit__(None, None, None)

    def screen(self) -> str:
        """Everything so far, but for the path of the script, which varies in length."""
        return self.terminal.everything.replace(str(self._folder), "FOLDER")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with a short path: it is typed."""
    folder = tmp_path_factory.getbasetemp() / f"s{len(list(tmp_path_factory.getbasetemp().iterdir()))}"
    folder.mkdir()
    (folder / "home" / "sessions").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "columns", [60, pytest.param(120, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
def test_a_turn_from_the_bar_to_the_numbers(folder: Path, columns: int, write_screens: bool) -> None:
    with Stage(folder, size=(50, columns)) as stage:
        terminal = stage.terminal
        stage.play(ANSWER)
        terminal.wait_for(r"(?m)▒░+ 1,000 of 4,000 tokens")
        stage.go_on("bar")
        terminal.wait_for(r"(?m)▒█+░+ 3,048 of 4,000 tokens")
        stage.go_on("read")
        terminal.wait_for(r"(?m)^thinking … \d+ tokens, \d+\.\d s\nFirst I look(.|\n)*nothing else\.")
        terminal.send(CTRL_O)
        terminal.wait_for(r"thinking … \d+ tokens, \d+\.\d s\Z")
        stage.go_on("reasoned")
        terminal.wait_for(r"▌ A quotation\Z")
        terminal.send("typed meanwhile")
        stage.go_on("half")
        terminal.wait_for_prompt("typed meanwhile")
        assert terminal.raw.count("longest") < 40
        same_screen(f"turn-{columns}", re.sub(r"(?s)\A.*?(?=^thought)", "", stage.screen(), flags=re.M), write_screens)
        terminal.send(CTRL_O)
        terminal.wait_for(r"First I look at the question(.|\n)*nothing else\.\n> typed meanwhile\Z")


@pytest.mark.parametrize(("before", "after"), [(120, 60), pytest.param(60, 120, marks=pytest.mark.slow)])
def test_a_window_resized_in_the_middle_of_an_answer(
    folder: Path, before: int, after: int, write_screens: bool
) -> None:
    words = " ".join(f"word{n}" for n in range(40))
    with Stage(folder, size=(30, before)) as stage:
        stage.play(f"first paragraph\n\n{words}\n@wait go\nlast words\n")
        stage.terminal.wait_for("word39")
        stage.terminal.resize(30, after)
        stage.terminal.wait_for(r"(?m)^word0 .*\n(word.*\n)*.*word39\Z")
        stage.go_on("go")
        stage.terminal.wait_for(r"last words\n(.*\n)*>\Z")
        shown = stage.screen()
        assert shown.count("word0 ") == 1
        same_screen(f"resized-{before}-{after}", shown[shown.index("first paragraph") :], write_screens)


@pytest.mark.slow
def test_an_answer_longer_than_the_screen_stays_whole_above(folder: Path) -> None:
    rows = "\n".join(f"| {n} | {n * n} |" for n in range(60))
    with Stage(folder, size=(20, 80)) as stage:
        stage.play(f"| n | n² |\n|---|---|\n{rows}\n@wait go\n\nafter\n")
        stage.terminal.wait_for(r"⋮ \d+ lines above\n(.*\n)* *59 +3481")
        stage.go_on("go")
        stage.terminal.wait_for(r"(?m)^after\n(.*\n)*>\Z")
        text = stage.terminal.everything
        assert [int(n) for n in re.findall(r"(?m)^ (\d+) +\d+$", text)] == list(range(60))
        assert "⋮" not in text


def test_ctrl_c_while_the_prompt_is_read_and_while_it_thinks(folder: Path) -> None:
    with Stage(folder) as stage:
        terminal = stage.terminal
        stage.play("@prefill 0 4000 0\n@wait never\n")
        terminal.wait_for("0 of 4,000 tokens")
        terminal.send(CTRL_C)
        terminal.wait_for(r"before a word was said\)\n> play \S+\Z")
        assert "of 4,000" not in terminal.text
        terminal.send(CTRL_C)
        terminal.wait_for_prompt()
        stage.play("@reason because\n@wait never\n")
        terminal.wait_for(r"thinking … 1 tokens, \d\.\d s\nbecause")
        terminal.send(CTRL_C)
        terminal.wait_for(r"thought 1 tokens, \d\.\d s\n(.*\n)*\(stopped; what was said is kept\)\n>\Z")


def test_what_is_typed_while_a_message_comes_back_begins_a_line_of_its_own(folder: Path) -> None:
    with Stage(folder) as stage:
        terminal = stage.terminal
        terminal.line("hang silently")
        terminal.wait_for("hanging", after="silently")
        terminal.send(f"and more{ENTER}")
        terminal.send(CTRL_C)
        terminal.wait_for(r"> hang silently\n… and more\n…\Z")


def test_what_is_typed_before_the_first_prompt_is_sent(folder: Path) -> None:
    with Terminal([str(PROGRAM)], {**environment(), "MLXCHAT_HOME": str(folder / "home")}) as terminal:
        terminal.send(f"say early{ENTER}")
        terminal.wait_for(r"(?m)^> say early\n(.*\n)*^early\nprompt")


def test_long_pastes(folder: Path) -> None:
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\nprintf "edited " > "$1.new"; wc -l < "$1" >> "$1.new"; mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    with Stage(folder, EDITOR=str(editor), VISUAL="") as stage:
        terminal = stage.terminal
        terminal.send("say " + pasted(120))
        terminal.wait_for_prompt("say [pasted 120 lines]")
        terminal.send(BACKSPACE)
        terminal.wait_for_prompt("say")
        terminal.send(pasted(30) + ENTER)
        terminal.wait_for(r"(?m)^> say \[pasted 30 lines\]$")
        terminal.wait_for(r"(?m)^line 28\nline 29\nprompt")
        terminal.send(pasted(50) + CTRL_X_CTRL_E)
        terminal.wait_for(r"(?m)^> edited\s+49\Z")
        terminal.send(CTRL_C)
        terminal.wait_for_prompt()
        terminal.send(UP)
        terminal.wait_for(r"… line 28\n… line 29\Z")


@pytest.mark.slow
def test_a_paste_while_the_model_works_is_no_enter(folder: Path) -> None:
    with Stage(folder) as stage:
        stage.play("@wait go\nyes\n")
        stage.terminal.send("\x1b[200~say one\rtwo\x1b[201~")
        stage.go_on("go")
        stage.terminal.wait_for(r"> say one\n… two\Z")


def test_history_and_completion(folder: Path) -> None:
    with Stage(folder) as stage:
        terminal = stage.terminal
        terminal.line("say the first")
        terminal.wait_for(r"(?m)^the first\nprompt(.*\n)*>\Z")
        terminal.line("say another")
        terminal.wait_for(r"(?m)^another\nprompt(.*\n)*>\Z")
        terminal.send(CTRL_R + "fir")
        terminal.wait_for(r"> say the first\n+I-search backward: fir\Z")
        terminal.send(ENTER)
        terminal.wait_for_prompt("say the first")
        terminal.send(CTRL_C + CTRL_L)
        terminal.wait_for(r"\A>\Z")
        terminal.send("/rena\t")
        terminal.wait_for_prompt("/rename")
        terminal.send(" rivers" + ENTER)
        terminal.wait_for("is called “rivers”")
        terminal.send("/markd\t")
        terminal.wait_for_prompt("/markdown")
        terminal.send(" of\t")
        terminal.wait_for_prompt("/markdown off")
        terminal.send(ENTER)
        terminal.wait_for("markdown is off")
        terminal.line("say **plain**")
        terminal.wait_for(r"(?m)^\*\*plain\*\*$")
        [session] = [path.stem for path in (folder / "home" / "sessions").glob("*.jsonl")]
        terminal.send(f"/load {session[:4]}\t")
        terminal.wait_for_prompt(f"/load {session}")


@pytest.mark.slow
def test_the_gauge_warns(folder: Path) -> None:
    with Stage(folder, size=(30, 60)) as stage:
        stage.terminal.line("fill 85")
        stage.terminal.wait_for(r"(?m)^prompt 4,210 \(.*\) · rewound 312\n.*ctx 85 %, nearly full\n>\Z")
        assert re.search(r"\x1b\[33mctx 85 %, nearly full", stage.terminal.raw)


@pytest.mark.slow
def test_no_color_keeps_bold_and_dim(folder: Path, write_screens: bool) -> None:
    with Stage(folder, NO_COLOR="1") as stage:
        stage.play("@reason because\n# Title\n\n**bold** and `code`\n\n```python\nx = 1\n```\n")
        stage.terminal.wait_for(r"x = 1\n```\nprompt(.*\n)*>\Z")
        assert not re.search(r"\x1b\[[\d;]*[349]\d[\d;]*m", stage.terminal.raw)
        assert "\x1b[1mbold" in stage.terminal.raw


@pytest.mark.slow
def test_never_any_style(folder: Path) -> None:
    with Stage(folder, "--color", "never") as stage:
        stage.play("# Title\n\n**bold** and `code`\n")
        stage.terminal.wait_for(r"# Title\n\n\*\*bold\*\* and `code`\nprompt")


@pytest.mark.slow
def test_a_terminal_that_can_only_print(folder: Path) -> None:
    with Stage(folder, term="dumb") as stage:
        stage.play("@prefill 0 4000 500\n@wait go\n@prefill 2048 4000 500\n@reason because\n# Title\n")
        stage.go_on("go")
        stage.terminal.wait_for(r"thinking …\s+# Title\s+prompt 4,210")
        sent = stage.terminal.raw[stage.terminal.raw.index("thinking") :]
        assert "\x1b[" not in sent.split("prompt 4,210")[0]


@pytest.mark.slow
def test_as_it_is_written(folder: Path) -> None:
    with Stage(folder, "--no-markdown") as stage:
        stage.terminal.line("say **plain** - text")
        stage.terminal.wait_for(r"(?m)^\*\*plain\*\* - text\nprompt")


@pytest.fixture
def shell() -> str:
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(PROGRAM))}"


def in_shell(command: str) -> Terminal:
    return Terminal(["-c", command], environment(), program="/bin/sh")


@pytest.mark.slow
def test_one_question_is_rendered_on_a_terminal_and_plain_in_a_pipe(shell: str) -> None:
    with in_shell(f"{shell} 'say **bold**'; echo end") as terminal:
        terminal.wait_for(r"bold\nend")
        assert "**" not in terminal.text
    with in_shell(f"{shell} 'think **bold**' | cat -v; echo end") as terminal:
        terminal.wait_for(r"\*\*bold\*\*\nend")


@pytest.mark.slow
def test_a_pipe_that_closes_early_is_no_error(shell: str, folder: Path) -> None:
    (folder / "p").write_text("\n".join(f"line {n}" for n in range(20_000)), encoding="utf-8")
    with in_shell(f"{shell} 'play {folder / 'p'}' | head -1; echo end") as terminal:
        terminal.wait_for(r"(?m)^line 0\nend")
        assert "Traceback" not in terminal.text
        assert "mlxchat:" not in terminal.text


@pytest.mark.slow
def test_keys_at_the_prompt_that_leave(folder: Path) -> None:
    with Stage(folder) as stage:
        stage.terminal.send(f"one{CTRL_J}two")
        stage.terminal.wait_for(r"> one\n… two\Z")
        stage.terminal.send(CTRL_C)
        stage.terminal.wait_for_prompt()
        stage.terminal.send(CTRL_D)
        assert stage.terminal.wait_for_exit() == 0
