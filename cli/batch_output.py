"""What a batch leaves to read: lines on stderr, and with --json an object on stdout. Answers are in their file."""

from __future__ import annotations

from ..errors import MlxchatError
from ..transcripts.batch_tally import Tally
from .batch_flags import BatchFlags
from .json_output import BATCH, failure_object, write_json
from .replay_json import versions
from .replay_table import plain
from .replay_words import duration
from .streams import Streams

_MOST_NAMED = 5


class BatchOutput:
    """Told of the end, once."""

    def __init__(self, flags: BatchFlags, streams: Streams) -> None:
        self._flags = flags
        self._streams = streams
        self._told = False

    def end(self, tally: Tally) -> None:
        """The run is over, or Ctrl-C ended it."""
        self._told = True
        for line in (*tally.warnings(), *_words(tally, self._flags)):
            self._streams.note(line)
        if self._flags.json:
            write_json(
                self._streams,
                {
                    "schema": BATCH,
                    "requests": self._flags.requests,
                    "out": self._flags.out,
                    "model": tally.model or None,
                    "adapter": tally.adapter,
                    "parallel": self._flags.parallel,
                    **_numbers(tally),
                    "versions": versions(),
                },
            )

    def failed(self, error: MlxchatError, tally: Tally) -> None:
        """The run ends with `error`; what was answered before it is in the file."""
        if self._flags.json and not self._told:
            self._told = True
            write_json(self._streams, {**failure_object(BATCH, error, ""), **_numbers(tally)})


def _numbers(tally: Tally) -> dict[str, object]:
    failures = [failure.to_json() for failure in tally.failures]
    return {"summary": tally.to_json(), "errors": failures, "warnings": tally.warnings()}


def _words(tally: Tally, flags: BatchFlags) -> list[str]:
    """The sums for people, and the first lines that failed."""
    counts = [f"{tally.answered:,} answered"]
    counts += [f"{tally.failed:,} failed"] * bool(tally.failed)
    counts += [f"{tally.before:,} done before"] * bool(tally.before)
    counts += [f"{tally.left:,} left"] * bool(tally.left)
    lines = [f"{' · '.join(counts)} of {tally.lines:,} · answers in {flags.out}"]
    if tally.prompt_tokens:
        cached = f"{tally.cached_tokens:,} cached ({100 * (tally.hit_rate or 0):.0f} %)"
        spent = f"{tally.completion_tokens:,} tokens in {duration(tally.wall_s)} ({tally.tokens_per_s:.1f} tok/s)"
        lines.append(f"prompts {tally.prompt_tokens:,} tokens, {cached} · answers {spent}")
    for failure in tally.failures[:_MOST_NAMED]:
        lines.append(f"failed: {plain(failure.custom_id) or f'line {failure.line}'}: {plain(failure.message)}")
    more = tally.failed - _MOST_NAMED
    lines += [f"and {more:,} more failed"] * (more > 0)
    if tally.failed_before:
        lines.append(f"{tally.failed_before:,} failed in an earlier run; --retry-errors runs them again")
    return lines
