"""The hidden command `chat`: its options and nothing else. What it does is imported only when it runs.

Annotations are not put off here: typer would compile each of them again, and --help be slower for it.
"""

from typing import Annotated

import typer

from ..errors import Interrupted
from .completions import session_ids
from .shared_options import (
    CACHE,
    MODEL,
    OUTPUT,
    Adapter,
    CacheBytes,
    CacheDir,
    Color,
    Json,
    KvBits,
    KvGroupSize,
    Model,
    NoCache,
    Offline,
    Quiet,
    Template,
    Think,
    Verbose,
    Yes,
    option,
)

_SAMPLING, _INPUT, _TOOLS, _SESSION = "Sampling", "Input", "Tools", "Saved chats"


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
    model: Model = None,
    system: Annotated[
        str | None,
        option("-s", "--system", help="System prompt, or @FILE (@@ for a plain @).", panel=MODEL, metavar="TEXT"),
    ] = None,
    template: Template = None,
    adapter: Adapter = None,
    think: Think = None,
    think_budget: Annotated[
        int | None,
        option("--think-budget", help="Most reasoning tokens.", panel=MODEL, metavar="N", min=0),
    ] = None,
    offline: Offline = False,
    yes: Yes = False,
    temp: Annotated[
        float | None, option("--temp", help="Temperature; 0 is greedy.", panel=_SAMPLING, metavar="X", min=0)
    ] = None,
    top_p: Annotated[
        float | None,
        option(
            "--top-p", help="Sample from this much probability; 0 is off.", panel=_SAMPLING, metavar="X", min=0, max=1
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        option("--top-k", help="Sample from the K likeliest; 0 is off.", panel=_SAMPLING, metavar="K", min=0),
    ] = None,
    min_p: Annotated[
        float | None,
        option(
            "--min-p",
            help="Drop what is less likely than X × the best; 0 is off.",
            panel=_SAMPLING,
            metavar="X",
            min=0,
            max=1,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        option("--max-tokens", help="Longest answer, reasoning included.", panel=_SAMPLING, metavar="N", min=1),
    ] = None,
    seed: Annotated[
        int | None, option("--seed", help="Same seed, same answer.", panel=_SAMPLING, metavar="N", min=0)
    ] = None,
    option: Annotated[
        list[str] | None,
        option(
            "-o", "--option", help="More settings, such as -o repetition_penalty=1.1.", panel=_SAMPLING, metavar="K=V"
        ),
    ] = None,
    schema: Annotated[
        str | None,
        option("--schema", help="Answer in JSON that follows this schema.", panel=_SAMPLING, metavar="FILE|JSON"),
    ] = None,
    file: Annotated[
        list[str] | None,
        option(
            "-f", "--file", help="Send a text file along; may be repeated; - is stdin.", panel=_INPUT, metavar="FILE"
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        option(
            "-i",
            "--image",
            help="Send a picture along: a file, a URL, or - for stdin; may be repeated.",
            panel=_INPUT,
            metavar="PATH|URL",
        ),
    ] = None,
    turns: Annotated[
        str | None,
        option("--turns", help="Several turns: a message per line, or JSONL.", panel=_INPUT, metavar="FILE"),
    ] = None,
    no_stdin: Annotated[bool, option("--no-stdin", help="Don't read stdin.", panel=_INPUT)] = False,
    tools: Annotated[
        list[str] | None,
        option("--tools", help="Tools the model may call, each bound to a command.", panel=_TOOLS, metavar="FILE"),
    ] = None,
    tool_schemas: Annotated[
        list[str] | None,
        option(
            "--tool-schemas", help="Tools it is only told of: calls are printed, not run.", panel=_TOOLS, metavar="FILE"
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        option("--mcp", help="MCP servers, as mcpServers JSON; repeatable.", panel=_TOOLS, metavar="CONFIG"),
    ] = None,
    allow_tool: Annotated[
        list[str] | None,
        option("--allow-tool", help="Run this tool unasked; * and ? match; repeatable.", panel=_TOOLS, metavar="NAME"),
    ] = None,
    max_steps: Annotated[
        int | None,
        option("--max-steps", help="Requests that one turn may take; else 30.", panel=_TOOLS, metavar="N", min=1),
    ] = None,
    no_tools: Annotated[
        bool, option("--no-tools", help="Leave out the tools and servers of the settings.", panel=_TOOLS)
    ] = False,
    continue_last: Annotated[
        bool, option("-c", "--continue", help="Go on with the chat used last.", panel=_SESSION)
    ] = False,
    resume: Annotated[
        str | None,
        option(
            "-r",
            "--resume",
            help="Go on with this one; the id's start is enough.",
            panel=_SESSION,
            metavar="ID",
            autocompletion=session_ids,
        ),
    ] = None,
    fork: Annotated[
        bool, option("--fork", help="With -c or -r: go on in a copy, the old one stays as it is.", panel=_SESSION)
    ] = False,
    no_save: Annotated[bool, option("--no-save", help="Leave nothing of this chat on disk.", panel=_SESSION)] = False,
    json: Json = False,
    jsonl: Annotated[
        bool, option("--jsonl", help="Print a JSON object per event, as it happens.", panel=OUTPUT)
    ] = False,
    no_stream: Annotated[bool, option("--no-stream", help="Print the answer when it is whole.", panel=OUTPUT)] = False,
    no_markdown: Annotated[
        bool, option("--no-markdown", help="Show answers as they are written, not rendered.", panel=OUTPUT)
    ] = False,
    color: Color = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    no_cache: NoCache = False,
    cache_dir: CacheDir = None,
    cache_bytes: CacheBytes = None,
    no_ahead: Annotated[bool, option("--no-ahead", help="Don't prefill while you read and type.", panel=CACHE)] = False,
    kv_bits: KvBits = None,
    kv_group_size: KvGroupSize = None,
    cache_park: Annotated[
        str | None,
        option("--cache-park", help="Free the memory of KV that is idle for so long.", panel=CACHE, metavar="AGE"),
    ] = None,
    cache_ttl: Annotated[
        str | None,
        option("--cache-ttl", help="Delete KV that nobody has needed for so long.", panel=CACHE, metavar="AGE"),
    ] = None,
    cache_persist: Annotated[
        bool, option("--cache-persist", help="Keep the KV cache for later runs, beside the saved chats.", panel=CACHE)
    ] = False,
    cache_tenant: Annotated[
        str | None,
        option("--cache-tenant", help="Share the KV cache with runs of this name only.", panel=CACHE, metavar="NAME"),
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
