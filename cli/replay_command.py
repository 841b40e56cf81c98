"""The command `replay`: its options and nothing else. What it does is imported only when it runs."""

from typing import Annotated, Any, Literal

import typer

from ..errors import Interrupted

_MODEL, _REQUESTS, _RUN, _OUTPUT, _CACHE = "Model", "Requests", "Run", "Output", "KV cache"


def _option(*names: str, help: str, panel: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


def replay(
    transcript: Annotated[str, typer.Argument(metavar="TRANSCRIPT", help="A transcript, or a folder of them.")],
    model: Annotated[
        str, _option("-m", "--model", help="Alias, Hugging Face repo, or folder.", panel=_MODEL, metavar="NAME")
    ] = "smollm2",
    template: Annotated[
        str | None,
        _option("--template", help="Chat template: a built-in name or a file.", panel=_MODEL, metavar="NAME|FILE"),
    ] = None,
    think: Annotated[
        bool | None, _option("--think/--no-think", help="Render prompts for reasoning, or not.", panel=_MODEL)
    ] = None,
    offline: Annotated[bool, _option("--offline", help="Never use the network.", panel=_MODEL)] = False,
    yes: Annotated[bool, _option("--yes", help="Download the model without asking.", panel=_MODEL)] = False,
    format: Annotated[  # noqa: A002
        str | None, _option("--format", help="The transcript's format, if not clear.", panel=_REQUESTS, metavar="NAME")
    ] = None,
    system: Annotated[
        str | None,
        _option("-s", "--system", help="System prompt where a request has none: TEXT or @FILE.", panel=_REQUESTS),
    ] = None,
    tool_schemas: Annotated[
        str | None,
        _option("--tool-schemas", help="Tools where a request has none, as JSON.", panel=_REQUESTS, metavar="FILE"),
    ] = None,
    pad: Annotated[
        Literal["recorded"] | None,
        _option("--pad", help="Fill up to the recorded lengths with synthetic text.", panel=_REQUESTS),
    ] = None,
    limit_turns: Annotated[
        int | None, _option("--limit-turns", help="Only the first N requests.", panel=_REQUESTS, metavar="N", min=1)
    ] = None,
    max_context: Annotated[
        int | None,
        _option("--max-context", help="Skip requests of N tokens or more.", panel=_REQUESTS, metavar="N", min=1),
    ] = None,
    feed: Annotated[
        Literal["prefill", "decode"],
        _option("--feed", help="How recorded answers go in: in large calls, or token by token.", panel=_RUN),
    ] = "prefill",
    generate: Annotated[
        int | None, _option("--generate", help="Sample N tokens instead.", panel=_RUN, metavar="N", min=1)
    ] = None,
    temp: Annotated[
        float | None, _option("--temp", help="With --generate: 0 is greedy.", panel=_RUN, metavar="X", min=0)
    ] = None,
    seed: Annotated[
        int | None, _option("--seed", help="With --generate: same seed, same answer.", panel=_RUN, metavar="N", min=0)
    ] = None,
    plan: Annotated[bool, _option("--plan", help="Only say what it would cost; loads no weights.", panel=_RUN)] = False,
    prefill_rate: Annotated[
        float | None,
        _option("--prefill-rate", help="Estimate times at X tokens a second.", panel=_RUN, metavar="X", min=0.001),
    ] = None,
    compare: Annotated[
        bool, _option("--compare", help="Run each prompt once more without the cache.", panel=_RUN)
    ] = False,
    compare_sample: Annotated[
        int | None,
        _option("--compare-sample", help="Compare N requests only, evenly spread.", panel=_RUN, metavar="N", min=1),
    ] = None,
    min_efficiency: Annotated[
        float | None,
        _option(
            "--min-efficiency",
            help="Exit with 3 if efficiency is under X (0 to 1).",
            panel=_RUN,
            metavar="X",
            min=0,
            max=1,
        ),
    ] = None,
    report: Annotated[
        str | None, _option("--report", help="Write an HTML page of numbers.", panel=_OUTPUT, metavar="FILE")
    ] = None,
    with_text: Annotated[
        bool, _option("--with-text", help="Let the page show names and words of the transcript.", panel=_OUTPUT)
    ] = False,
    json: Annotated[bool, _option("--json", help="Print one JSON object.", panel=_OUTPUT)] = False,
    jsonl: Annotated[bool, _option("--jsonl", help="Print a JSON object per request.", panel=_OUTPUT)] = False,
    color: Annotated[
        Literal["auto", "always", "never"], _option("--color", help="Colour: auto, always or never.", panel=_OUTPUT)
    ] = "auto",
    quiet: Annotated[bool, _option("-q", "--quiet", help="Only errors on stderr.", panel=_OUTPUT)] = False,
    verbose: Annotated[
        int,
        _option(
            "-v",
            "--verbose",
            help="Name the tokens that differ; -vv adds tracebacks.",
            panel=_OUTPUT,
            count=True,
            show_default=False,
        ),
    ] = 0,
    no_cache: Annotated[bool, _option("--no-cache", help="Reuse nothing.", panel=_CACHE)] = False,
    cache_dir: Annotated[
        str | None, _option("--cache-dir", help="Folder of the scratch file.", panel=_CACHE, metavar="DIR")
    ] = None,
    cache_bytes: Annotated[
        str | None, _option("--cache-bytes", help="Its largest size, such as 2GB.", panel=_CACHE, metavar="SIZE")
    ] = None,
    kv_bits: Annotated[
        int | None, _option("--kv-bits", help="Keep full-attention KV in 4 or 8 bits.", panel=_CACHE, metavar="N")
    ] = None,
    kv_group_size: Annotated[
        int | None,
        _option("--kv-group-size", help="Values that share a scale: 32, 64 or 128.", panel=_CACHE, metavar="N"),
    ] = None,
) -> int:
    """Run a recorded chat or agent trace and show what each request costs, and why."""
    given = dict(locals())
    try:
        from .replay_flags import ReplayFlags
        from .replay_run import run_replay

        return run_replay(ReplayFlags(**given))
    except KeyboardInterrupt:  # typer would end the run without a word, in JSON too
        raise Interrupted("interrupted") from None
