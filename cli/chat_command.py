"""The hidden command `chat`: its options and nothing else. What it does is imported only when it runs.

Annotations are not put off here: typer would compile each of them again, and --help be slower for it.
"""

from typing import Annotated, Any, Literal

import typer

from ..errors import Interrupted

_MODEL, _SAMPLING, _INPUT, _OUTPUT, _CACHE = "Model", "Sampling", "Input", "Output", "KV cache"
_SESSION = "Saved chats"


def _option(*names: str, help: str, panel: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__
        from .streams import Streams

        Streams().write(f"mlxchat {__version__}\n")
        raise typer.Exit


def chat(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(help="The question. `-`: all of it from stdin. Without one, and on a terminal: a chat."),
    ] = None,
    model: Annotated[
        str | None,
        _option(
            "-m", "--model", help="Alias, Hugging Face repo, or folder; else smollm2.", panel=_MODEL, metavar="NAME"
        ),
    ] = None,
    system: Annotated[
        str | None,
        _option("-s", "--system", help="System prompt, or @FILE (@@ for a plain @).", panel=_MODEL, metavar="TEXT"),
    ] = None,
    template: Annotated[
        str | None,
        _option("--template", help="Chat template: a built-in name or a file.", panel=_MODEL, metavar="NAME|FILE"),
    ] = None,
    think: Annotated[
        bool | None, _option("--think/--no-think", help="Let the model reason first, or not.", panel=_MODEL)
    ] = None,
    think_budget: Annotated[
        int | None,
        _option("--think-budget", help="Most reasoning tokens.", panel=_MODEL, metavar="N", min=0),
    ] = None,
    offline: Annotated[bool, _option("--offline", help="Never use the network.", panel=_MODEL)] = False,
    yes: Annotated[bool, _option("--yes", help="Download the model without asking.", panel=_MODEL)] = False,
    temp: Annotated[
        float | None, _option("--temp", help="Temperature; 0 is greedy.", panel=_SAMPLING, metavar="X", min=0)
    ] = None,
    top_p: Annotated[
        float | None,
        _option("--top-p", help="Sample from this much probability.", panel=_SAMPLING, metavar="X", min=0, max=1),
    ] = None,
    top_k: Annotated[
        int | None, _option("--top-k", help="Sample from the K likeliest.", panel=_SAMPLING, metavar="K", min=0)
    ] = None,
    min_p: Annotated[
        float | None,
        _option(
            "--min-p", help="Drop what is less likely than X × the best.", panel=_SAMPLING, metavar="X", min=0, max=1
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", help="Longest answer, reasoning included.", panel=_SAMPLING, metavar="N", min=1),
    ] = None,
    seed: Annotated[
        int | None, _option("--seed", help="Same seed, same answer.", panel=_SAMPLING, metavar="N", min=0)
    ] = None,
    option: Annotated[
        list[str] | None,
        _option(
            "-o", "--option", help="More settings, such as -o repetition_penalty=1.1.", panel=_SAMPLING, metavar="K=V"
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        _option(
            "-f", "--file", help="Send a text file along; may be repeated; - is stdin.", panel=_INPUT, metavar="FILE"
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        _option(
            "-i",
            "--image",
            help="Send a picture along: a file, a URL, or - for stdin; may be repeated.",
            panel=_INPUT,
            metavar="PATH|URL",
        ),
    ] = None,
    turns: Annotated[
        str | None,
        _option("--turns", help="Several turns: a message per line, or JSONL.", panel=_INPUT, metavar="FILE"),
    ] = None,
    no_stdin: Annotated[bool, _option("--no-stdin", help="Don't read stdin.", panel=_INPUT)] = False,
    continue_last: Annotated[
        bool, _option("-c", "--continue", help="Go on with the chat used last.", panel=_SESSION)
    ] = False,
    resume: Annotated[
        str | None,
        _option("-r", "--resume", help="Go on with this one; the id's start is enough.", panel=_SESSION, metavar="ID"),
    ] = None,
    fork: Annotated[
        bool, _option("--fork", help="With -c or -r: go on in a copy, the old one stays as it is.", panel=_SESSION)
    ] = False,
    no_save: Annotated[bool, _option("--no-save", help="Leave nothing of this chat on disk.", panel=_SESSION)] = False,
    json: Annotated[bool, _option("--json", help="Print one JSON object.", panel=_OUTPUT)] = False,
    jsonl: Annotated[
        bool, _option("--jsonl", help="Print a JSON object per event, as it happens.", panel=_OUTPUT)
    ] = False,
    no_stream: Annotated[
        bool, _option("--no-stream", help="Print the answer when it is whole.", panel=_OUTPUT)
    ] = False,
    color: Annotated[
        Literal["auto", "always", "never"],
        _option("--color", help="Colour: auto, always or never.", panel=_OUTPUT, metavar="WHEN"),
    ] = "auto",
    quiet: Annotated[bool, _option("-q", "--quiet", help="Only errors on stderr.", panel=_OUTPUT)] = False,
    verbose: Annotated[
        int,
        _option(
            "-v", "--verbose", help="Say more; -vv adds tracebacks.", panel=_OUTPUT, count=True, show_default=False
        ),
    ] = 0,
    no_cache: Annotated[bool, _option("--no-cache", help="Don't reuse or store the KV cache.", panel=_CACHE)] = False,
    cache_dir: Annotated[
        str | None, _option("--cache-dir", help="Folder of the scratch file.", panel=_CACHE, metavar="DIR")
    ] = None,
    cache_bytes: Annotated[
        str | None, _option("--cache-bytes", help="Its largest size, such as 2GB.", panel=_CACHE, metavar="SIZE")
    ] = None,
    no_ahead: Annotated[
        bool, _option("--no-ahead", help="Don't prefill while you read and type.", panel=_CACHE)
    ] = False,
    kv_bits: Annotated[
        int | None, _option("--kv-bits", help="Keep full-attention KV in 4 or 8 bits.", panel=_CACHE, metavar="N")
    ] = None,
    kv_group_size: Annotated[
        int | None,
        _option("--kv-group-size", help="Values that share a scale: 32, 64 or 128.", panel=_CACHE, metavar="N"),
    ] = None,
    cache_ttl: Annotated[
        str | None,
        _option("--cache-ttl", help="Delete KV that nobody has needed for so long.", panel=_CACHE, metavar="AGE"),
    ] = None,
    cache_persist: Annotated[
        bool, _option("--cache-persist", help="Keep the KV cache for later runs, beside the saved chats.", panel=_CACHE)
    ] = False,
    cache_tenant: Annotated[
        str | None,
        _option("--cache-tenant", help="Share the KV cache with runs of this name only.", panel=_CACHE, metavar="NAME"),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> int:
    """Ask a model, or chat with it."""
    given = dict(locals())
    del given["version"]
    try:
        from .chat_flags import ChatFlags
        from .chat_run import run_chat

        return run_chat(ChatFlags(**given))
    except KeyboardInterrupt:  # typer would end the run without a word, in JSON too
        raise Interrupted("interrupted") from None
