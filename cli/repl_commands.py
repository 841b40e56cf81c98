"""What a line typed at the prompt is: text for the model, or a slash command."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..errors import UsageError

COMMANDS = {
    "/help": "what can be typed here",
    "/undo": "take the last message and its answer back, to change it",
    "/redo": "bring back what was taken back last",
    "/retry": "answer the last message again; the old answer stays in the tree",
    "/edit": "change a message of yours and go on from there: the last, or the N-th last",
    "/rewind": "take your last N messages and their answers back",
    "/drop": "go on without your N oldest messages and their answers",
    "/tree": "every branch of this chat; with a number: go to that message",
    "/fork": "go on in a copy; this chat stays as it is",
    "/new": "a new chat; this one stays saved (so does /clear)",
    "/private": "a new chat of which nothing is saved",
    "/sessions": "the chats that are saved",
    "/load": "go on with a saved chat; the start of its id is enough",
    "/rename": "give this chat a name (so does /save)",
    "/search": "find words in the saved chats",
    "/export": "write this chat to a file: .md, .json (OpenAI) or .sts.jsonl",
    "/image": "a picture for the next message: a path or URL; alone: what goes with it",
    "/file": "a text file for the next message",
    "/detach": "let go of those again, by number or name; alone: of all",
    "/paste": "what is in the clipboard: a picture goes along, text stands at the prompt",
    "/copy": "the last answer into the clipboard",
    "/multiline": "Enter begins a new line and Alt-Enter sends; again: the other way round",
    "/system": "the system prompt; with TEXT or @FILE: another one, none: no more",
    "/set": "the settings; with a name and a value: change one (temp 0.7, seed default)",
    "/think": "whether the model reasons first, for how many tokens, and whether you see it",
    "/markdown": "whether answers are rendered: on or off",
    "/model": "the model; with a name: another one goes on with this chat",
    "/models": "the models on this machine",
    "/tools": "the tools the model may call; enable NAME, disable NAME",
    "/mcp": "the MCP servers; enable NAME starts one (again), disable NAME ends it",
    "/tokens": "how many tokens this chat has, or TEXT",
    "/prompt": "the exact prompt of the last answer, or of TEXT; --ids: its ids, cached and new",
    "/stats": "the numbers of the last answer and of the whole chat",
    "/cache": "what the KV cache holds, what it reused, and why not more",
    "/exit": "leave (so does Ctrl-D)",
}
ARGUMENTS = {
    "/edit": "[N]",
    "/rewind": "[N]",
    "/drop": "N",
    "/tree": "[NUMBER]",
    "/load": "ID",
    "/rename": "NAME",
    "/search": "WORDS",
    "/export": "FILE",
    "/image": "PATH|URL",
    "/file": "PATH",
    "/detach": "N|NAME",
    "/system": "[TEXT|@FILE|none]",
    "/set": "[NAME [VALUE]]",
    "/think": "[on|off|show|hide|budget N]",
    "/model": "[NAME]",
    "/tokens": "[TEXT]",
    "/prompt": "[--ids] [TEXT]",
    "/tools": "[VERB NAME]",
    "/mcp": "[VERB NAME]",
    "/markdown": "[on|off]",
}
"""What may stand after a command; the others take nothing."""

ALIASES = {"/clear": "/new", "/quit": "/exit", "/save": "/rename"}
_BLOCK = '"""'


@dataclass(frozen=True)
class Typed:
    """A line understood: a command of COMMANDS and its `argument`, or else `text` for the model."""

    command: str | None = None
    text: str = ""
    argument: str = ""


def understand(line: str) -> Typed:
    """Tell commands from text. Raises UsageError for an unknown command, which is never sent to the model.

    A `\"\"\"` block is text as it stands; `//text` is text with one slash; a path that exists is text, and so is a
    pasted piece of code that happens to begin with a comment.
    """
    line = line.strip()
    if line.startswith(_BLOCK):
        return Typed(text=line.removeprefix(_BLOCK).removesuffix(_BLOCK).strip("\n"))
    if not line.startswith("/"):
        return Typed(text=line)
    first = line.split(maxsplit=1)[0]
    if "\n" in line and first[1:2] in ("/", "*", ""):
        return Typed(text=line)
    if line.startswith("//"):
        return Typed(text=line[1:])
    return _command(first, line)


def _command(first: str, line: str) -> Typed:
    name = ALIASES.get(first, first)
    if name in COMMANDS:
        argument = line.removeprefix(first).strip()
        if argument and name not in ARGUMENTS:
            raise UsageError(f"{name} takes nothing after it", "to send the line as text, begin it with two slashes")
        return Typed(command=name, argument=argument)
    if _exists(first):
        return Typed(text=line)
    near = get_close_matches(first.lower(), [*COMMANDS, *ALIASES], n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"there is no command {first}{meant}", "/help lists them; to send the line as text, begin it with //"
    )


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        return False


def wants_more(text: str) -> bool:
    """Whether Enter should begin another line of `text`: it ends in a backslash, or its block is still open."""
    block = text.lstrip().startswith(_BLOCK) and text.count(_BLOCK) % 2 == 1
    return block or text.endswith("\\")
