"""What is said around the table of a replay: before it what was read, after it the sums and the costliest requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..transcripts.heading import Coming, Share, images_in, skipped_lines
from ..transcripts.jobs import Job
from ..transcripts.model import Transcript
from ..transcripts.padding import MARK
from ..transcripts.remedies import Costly, costliest
from ..transcripts.rows import Result, Row, by_conversation
from .line_breaking import cut, wrapped
from .replay_table import Line, Span, Table, plain
from .replay_timeline import timeline
from .stats_line import seconds, size

_LABEL = 12
_MOST_REASONS = 3


@dataclass(frozen=True)
class Subject:
    """What is replayed on what.

    supplied   what the user added, in phrases
    sees       whether the model sees pictures
    adapter    the folder of the adapter over it
    """

    transcript: Transcript
    jobs: Sequence[Job]
    model: str
    template: str
    context: int
    supplied: Sequence[str] = field(default_factory=tuple)
    sees: bool = False
    adapter: str | None = None

    @property
    def model_words(self) -> str:
        """The model, and the name of its adapter."""
        return self.model if self.adapter is None else f"{self.model} + {Path(self.adapter).name}"


def labelled(label: str, text: str, width: int, style: str = "") -> list[Line]:
    """`text` behind a label, wrapped to the width under its own first word."""
    lines = wrapped(text, max(20, width - _LABEL))
    heads = [label.ljust(_LABEL)] + [" " * _LABEL] * (len(lines) - 1)
    return [[Span(head, "dim"), Span(words, style)] for head, words in zip(heads, lines, strict=True)]


def heading(subject: Subject, share: Share, coming: Coming, width: int) -> Iterator[Line]:
    """The lines before the table."""
    transcript = subject.transcript
    conversations = len({job.conversation for job in subject.jobs})
    parts = transcript.parts or (transcript,)
    words = [
        ", ".join(plain(Path(part.path).name) for part in parts),
        transcript.format,
        f"{_count(conversations, 'conversation')}, {_count(len(subject.jobs), 'request')}",
    ]
    yield from labelled("transcript", " · ".join(words), width)
    for why, count, line in skipped_lines(transcript)[:_MOST_REASONS]:
        yield from labelled("", f"{_count(count, 'line')} skipped, the first {line:,}: {plain(why)}", width, "yellow")
    yield from labelled(
        "model", f"{plain(subject.model_words)} · {plain(subject.template)} · context {subject.context:,}", width
    )
    if share.missing or (share.percent is not None and share.percent < 99):
        yield from labelled("missing", missing_words(share), width, "yellow")
    images = images_in(subject.jobs)
    if images:
        why = "they can't be read here" if subject.sees else "this model sees no pictures"
        words_ = f"{_count(images, 'image')} {'stands' if images == 1 else 'stand'} as words: {why}"
        yield from labelled("", words_, width, "yellow")
    if subject.supplied:
        yield from labelled("supplied", ", ".join(subject.supplied), width)
    yield from labelled("plan", coming_words(coming), width)
    yield []


def missing_words(share: Share) -> str:
    """For example `file has 4 % of the recorded prompt: no system prompt, no tools, reasoning (encrypted)`."""
    lacks = ", ".join(one if "(" in one else f"no {one}" for one in share.missing)
    if share.percent is None:
        return f"the file has {lacks}" if lacks else "nothing"
    percent = f"{share.percent:.0f}" if share.percent >= 1 else f"{share.percent:.1f}"
    return f"file has {percent} % of the recorded prompt{f': {lacks}' if lacks else ''}"


def coming_words(coming: Coming) -> str:
    """For example `13 of 14 requests fit · 4,210 of 52,120 tokens to prefill · about 35 s`."""
    words = [
        f"{coming.fit:,} of {_count(coming.requests, 'request')} fit",
        f"{coming.prefill_tokens:,} of {coming.prompt_tokens:,} prompt tokens to prefill",
    ]
    if coming.seconds is not None:
        words.append(f"about {duration(coming.seconds)}")
    return " · ".join(words)


def duration(value: float) -> str:
    """Seconds as 35 s, 12 min, 3.5 h."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def summary(result: Result, table: Table, planned: bool = False) -> Iterator[Line]:
    """The lines after the table: subtotals where there are several conversations, then the sums."""
    yield []
    groups = by_conversation(result.rows)
    if len(groups) > 1:
        for name, rows in groups.items():
            yield table.subtotal(name, rows)
        yield []
    yield from _sums(result, table.width, planned)
    if table.side_by_side and not planned:
        yield from timeline(result, table.side_by_side, table.width)
    if any(row.planned.padded_tokens for row in result.rows):
        tokens = sum(row.planned.padded_tokens for row in result.rows)
        yield from labelled("padded", f"{tokens:,} tokens are synthetic, in the prompts marked {MARK}", table.width)


def _sums(result: Result, width: int, planned: bool) -> Iterator[Line]:
    totals, skipped = result.totals, sum(row.outcome != "run" for row in result.rows)
    words = [_count(totals.turns, "request"), f"prompt {totals.prompt_tokens:,}"]
    words.append(f"{'reusable' if planned else 'cached'} {totals.cached_tokens:,} ({_percent(totals.hit_rate, 0)})")
    words.append(f"new {totals.prefill_tokens:,}")
    if skipped:
        words.append(f"{skipped} not run")
    yield from labelled("total", " · ".join(words), width, "bold")
    if planned:
        return
    if result.parallel > 1:
        yield from labelled("overlap", overlap_words(result), width)
    yield from labelled("efficiency", f"{_percent(totals.efficiency, 1)} of what was fed before", width)
    ttft = f"median {seconds(totals.ttft_ms['p50'])} · 95 % under {seconds(totals.ttft_ms['p95'])}"
    yield from labelled("ttft", ttft, width)
    baseline = result.baseline()
    if baseline is not None:
        uncached = f"median {seconds(baseline['ttft_ms']['p50'])} over {_count(baseline['requests'], 'request')}"
        ratio = f" · {baseline['ratio']:.1f} times as long" if baseline["ratio"] else ""
        yield from labelled("uncached", uncached + ratio, width)
    times = [("prefill", totals.prefill_s), ("answers", totals.decode_s), ("all", result.wall_s)]
    yield from labelled("time", " · ".join(f"{name} {seconds(1000 * value)}" for name, value in times), width)
    disk = result.disk
    words = [f"wrote {size(disk.bytes_written)}", f"read {size(disk.bytes_read)}"]
    words += [f"file {size(disk.file_bytes_peak)} at most", f"{disk.evictions:,} evicted", f"{disk.dropped:,} not kept"]
    yield from labelled("disk", " · ".join(words), width)
    yield from labelled("memory", f"{size(result.peak_bytes)} at most · {size(result.after_bytes)} at the end", width)
    mismatched = sum(row.planned.mismatched_tokens for row in result.rows)
    if mismatched:
        words_ = f"{mismatched:,} prompt tokens are not what rendering through the recorded answers begins with"
        yield from labelled("mismatches", words_, width)


def overlap_words(result: Result) -> str:
    """For example `2.7 requests at once on the average, 4 at most · 212 tokens/s`."""
    words = f"{result.at_once:.1f} requests at once on the average, {result.parallel} at most"
    return words if result.tokens_per_s is None else f"{words} · {result.tokens_per_s:,.0f} tokens/s"


def costs(rows: Sequence[Row], width: int, verbose: bool) -> Iterator[Line]:
    """The costliest divergences with cause and remedy; with `verbose` the first token that differs."""
    found = costliest(rows)
    if found:
        yield []
        yield [Span("What was read again", "bold")]
    for costly in found:
        yield from _cost(costly, width, verbose)


def _cost(costly: Costly, width: int, verbose: bool) -> Iterator[Line]:
    number = costly.row.planned.job.number
    yield from labelled(f"{costly.tokens:>7,} tok", f"request {number}: {costly.cause}", width)
    difference = costly.difference
    if difference is not None:
        where = f"from token {difference.position:,} on"
        if verbose:
            where += f": {token_words(difference.was)} stood there, now {token_words(difference.now)}"
        yield from labelled("", cut(where, max(20, width - _LABEL)), width, "dim")
    yield from labelled("", costly.remedy, width, "green")


def token_words(text: str | None) -> str:
    """A token's text, quoted, line ends as escapes; nothing in it can move the cursor."""
    return (
        "the end"
        if text is None
        else f'"{plain(text.encode("unicode_escape").decode("ascii")) if not text.isprintable() else text}"'
    )


def _percent(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
