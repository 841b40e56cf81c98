"""The command `replay`: its options and nothing else. What it does is imported only when it runs."""

from typing import Annotated, Literal

import typer

from ..errors import Interrupted
from .shared_options import (
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
    Yes,
    option,
)

_REQUESTS, _RUN = "Requests", "Run"


def replay(
    transcripts: Annotated[
        list[str], typer.Argument(metavar="TRANSCRIPT...", help="Transcripts, or folders of such as belong together.")
    ],
    model: Model = None,
    template: Template = None,
    adapter: Adapter = None,
    think: Annotated[
        bool | None, option("--think/--no-think", help="Render prompts for reasoning, or not.", panel=MODEL)
    ] = None,
    offline: Offline = False,
    yes: Yes = False,
    format: Annotated[  # noqa: A002
        str | None, option("--format", help="The transcript's format, if not clear.", panel=_REQUESTS, metavar="NAME")
    ] = None,
    system: Annotated[
        str | None,
        option("-s", "--system", help="System prompt where a request has none: TEXT or @FILE.", panel=_REQUESTS),
    ] = None,
    tool_schemas: Annotated[
        str | None,
        option("--tool-schemas", help="Tools where a request has none, as JSON.", panel=_REQUESTS, metavar="FILE"),
    ] = None,
    pad: Annotated[
        Literal["recorded"] | None,
        option("--pad", help="Fill up to the recorded lengths with synthetic text.", panel=_REQUESTS),
    ] = None,
    limit_turns: Annotated[
        int | None, option("--limit-turns", help="Only the first N requests.", panel=_REQUESTS, metavar="N", min=1)
    ] = None,
    max_context: Annotated[
        int | None,
        option("--max-context", help="Skip requests of N tokens or more.", panel=_REQUESTS, metavar="N", min=1),
    ] = None,
    feed: Annotated[
        Literal["prefill", "decode"],
        option("--feed", help="How recorded answers go in: in large calls, or token by token.", panel=_RUN),
    ] = "prefill",
    parallel: Annotated[
        int, option("--parallel", help="Conversations side by side.", panel=_RUN, metavar="N", min=1, max=64)
    ] = 1,
    real_time: Annotated[
        bool, option("--real-time", help="Wait after each request for as long as its tools took.", panel=_RUN)
    ] = False,
    generate: Annotated[
        int | None, option("--generate", help="Sample N tokens instead.", panel=_RUN, metavar="N", min=1)
    ] = None,
    temp: Annotated[
        float | None, option("--temp", help="With --generate: 0 is greedy.", panel=_RUN, metavar="X", min=0)
    ] = None,
    seed: Annotated[
        int | None, option("--seed", help="With --generate: same seed, same answer.", panel=_RUN, metavar="N", min=0)
    ] = None,
    plan: Annotated[bool, option("--plan", help="Only say what it would cost; loads no weights.", panel=_RUN)] = False,
    prefill_rate: Annotated[
        float | None,
        option("--prefill-rate", help="Estimate times at X tokens a second.", panel=_RUN, metavar="X", min=0.001),
    ] = None,
    compare: Annotated[
        bool, option("--compare", help="Run each prompt once more without the cache.", panel=_RUN)
    ] = False,
    compare_sample: Annotated[
        int | None,
        option("--compare-sample", help="Compare N requests only, evenly spread.", panel=_RUN, metavar="N", min=1),
    ] = None,
    min_efficiency: Annotated[
        float | None,
        option(
            "--min-efficiency",
            help="Exit with 3 if efficiency is under X (0 to 1).",
            panel=_RUN,
            metavar="X",
            min=0,
            max=1,
        ),
    ] = None,
    report: Annotated[
        str | None, option("--report", help="Write an HTML page of numbers.", panel=OUTPUT, metavar="FILE")
    ] = None,
    with_text: Annotated[
        bool, option("--with-text", help="Let the page show names and words of the transcript.", panel=OUTPUT)
    ] = False,
    json: Json = False,
    jsonl: Annotated[bool, option("--jsonl", help="Print a JSON object per request.", panel=OUTPUT)] = False,
    color: Color = None,
    quiet: Quiet = False,
    verbose: Annotated[
        int,
        option(
            "-v",
            "--verbose",
            help="Name the tokens that differ; -vv adds tracebacks.",
            panel=OUTPUT,
            count=True,
            show_default=False,
        ),
    ] = 0,
    no_cache: NoCache = False,
    cache_dir: CacheDir = None,
    cache_bytes: CacheBytes = None,
    kv_bits: KvBits = None,
    kv_group_size: KvGroupSize = None,
) -> int:
    """Run a recorded chat or agent trace and show what each request costs, and why."""
    given = dict(locals())
    try:
        from .replay_flags import ReplayFlags
        from .replay_run import run_replay

        return run_replay(ReplayFlags(**given))
    except KeyboardInterrupt:  # typer would end the run without a word, in JSON too
        raise Interrupted("interrupted") from None
