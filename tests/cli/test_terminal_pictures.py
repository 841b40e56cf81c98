"""Pictures on the terminal: for whom, and the bytes that are written."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path

import pytest
from mlxchat.cli import terminal_pictures
from mlxchat.cli.streams import Streams
from mlxchat.cli.terminal_pictures import COLUMNS, ROWS, cell_size, drawing, protocol
from mlxchat.engine.pictures import decode_picture
from PIL import Image
from support.fake_tty import Tty
from support.picture_files import RED, png

pytestmark = pytest.mark.plain

PICTURE = decode_picture(png(RED, 1600, 900), "a.png")


@pytest.mark.parametrize(
    ("environment", "how"),
    [
        ({"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "foot-extra"}, "sixel"),
        ({"TERM": "mlterm"}, "sixel"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, None),
        ({}, None),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/x", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "screen", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "xterm-256color", "MLXCHAT_PICTURES": "sixel"}, "sixel"),
        ({"TERM": "xterm-kitty", "MLXCHAT_PICTURES": "off"}, None),
    ],
)
def test_which_terminals_are_known(environment: dict[str, str], how: str | None) -> None:
    assert protocol(environment) == how


def shown(data: str) -> Image.Image:
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.load()
    return image


def test_kitty_gets_a_png_in_chunks_and_is_to_answer_nothing() -> None:
    noise = Image.effect_noise((400, 240), 90)
    out = io.BytesIO()
    noise.save(out, "PNG")
    text = drawing(decode_picture(out.getvalue(), "a"), "kitty")
    commands = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert text == "".join(f"\x1b_G{head};{body}\x1b\\" for head, body in commands) + "\n"
    heads, bodies = [head for head, _ in commands], [body for _, body in commands]
    assert len(commands) > 2
    assert heads == ["a=T,f=100,q=2,m=1", *["m=1"] * (len(heads) - 2), "m=0"]
    assert all(len(body) <= 4096 for body in bodies)
    assert shown("".join(bodies)).size == (400, 240)


def test_iterm2_gets_one_file() -> None:
    text = drawing(PICTURE, "iterm2")
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+);width=(\d+)px;height=(\d+)px:([^\x07]*)\x07\n", text)
    assert found is not None
    assert len(base64.b64decode(found[4])) == int(found[1])
    assert shown(found[4]).size == (int(found[2]), int(found[3]))


def test_sixel() -> None:
    text = drawing(PICTURE, "sixel")
    assert re.match(r'\x1bP[0-9;]*q"1;1;\d+;\d+#0;2;100;0;0', text)
    assert text.endswith("\x1b\\\n")


@pytest.mark.parametrize("size", [(1, 1), (5000, 1), (1, 5000), (7, 3)])
@pytest.mark.parametrize("how", ["kitty", "iterm2", "sixel"])
def test_any_size_is_drawn(size: tuple[int, int], how: terminal_pictures.Protocol) -> None:
    assert drawing(decode_picture(png(RED, *size), "a"), how).endswith("\n")


def test_it_is_small_and_keeps_its_shape() -> None:
    image = shown(re.findall(r";([^;\x1b]*)\x1b", drawing(PICTURE, "kitty", (10, 20)))[0])
    assert image.width <= 10 * COLUMNS
    assert image.height <= 20 * ROWS
    assert image.width / image.height == pytest.approx(16 / 9, abs=0.02)


def test_the_size_of_a_character() -> None:
    with Path("/dev/null").open() as nowhere:
        assert cell_size(nowhere) == (10, 20)
    assert cell_size(io.StringIO()) == (10, 20)


@pytest.mark.parametrize(
    ("out", "err", "verbosity", "draws"),
    [
        (Tty(), Tty(), 0, True),
        (io.StringIO(), Tty(), 0, False),
        (Tty(), io.StringIO(), 0, False),
        (Tty(), Tty(), -1, False),
    ],
)
def test_never_in_a_pipe_nor_when_quiet(
    out: io.StringIO, err: io.StringIO, verbosity: int, draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("MLXCHAT_PICTURES", raising=False)
    Streams("never", verbosity, stdout=out, stderr=err).draw(PICTURE)
    assert ("\x1b_G" in err.getvalue()) is draws
    assert out.getvalue() == ""


def test_the_library_that_makes_sixels_asks_the_terminal_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its public module does, while it is imported; so that one must stay out."""
    for name in [name for name in sys.modules if name.startswith("textual_image")]:
        monkeypatch.delitem(sys.modules, name)
    drawing(PICTURE, "sixel")
    loaded = {name for name in sys.modules if name.startswith("textual_image")}
    assert loaded == {"textual_image", "textual_image._sixel"}
