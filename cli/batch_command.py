"""The command `batch`: its options and nothing else. What it does is imported only when it runs."""

from typing import Annotated

import typer

from ..errors import Interrupted
from .shared_options import (
    Adapter,
    CacheBytes,
    CacheDir,
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

_RUN = "Run"


def batch(
    requests: Annotated[str, typer.Argument(metavar="REQUESTS", help="A JSONL file in OpenAI's batch layout.")],
    out: Annotated[str, option("--out", help="Where the answers go; it is added to.", panel=_RUN, metavar="FILE")],
    parallel: Annotated[
        int, option("--parallel", help="Requests under way at once.", panel=_RUN, metavar="N", min=1, max=64)
    ] = 4,
    retry_errors: Annotated[
        bool, option("--retry-errors", help="Run what failed in an earlier run again.", panel=_RUN)
    ] = False,
    max_tokens: Annotated[
        int | None,
        option("--max-tokens", help="Longest answer where a request names none.", panel=_RUN, metavar="N", min=1),
    ] = None,
    temp: Annotated[
        float | None,
        option("--temp", help="Temperature where a request names none.", panel=_RUN, metavar="X", min=0),
    ] = None,
    model: Model = None,
    template: Template = None,
    adapter: Adapter = None,
    think: Think = None,
    offline: Offline = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    no_cache: NoCache = False,
    cache_dir: CacheDir = None,
    cache_bytes: CacheBytes = None,
    kv_bits: KvBits = None,
    kv_group_size: KvGroupSize = None,
) -> int:
    """Answer a file of requests, several at once; run it again to go on where it stopped."""
    given = dict(locals())
    try:
        from .batch_flags import BatchFlags
        from .batch_run import run_batch

        return run_batch(BatchFlags(**given))
    except KeyboardInterrupt:  # typer would end the run without a word, in JSON too
        raise Interrupted("interrupted") from None
