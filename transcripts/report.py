"""The HTML page of a replay: one file, no network, numbers only unless text is asked for, everything escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..engine.stats import RequestStats
from .charts import Bars, Series, bars, lanes_chart, shown, timeline
from .model import Transcript
from .overlap import PhaseKind, phases
from .remedies import Costly, costliest
from .report_style import STYLE
from .rows import Result, Row

Names = dict[str, str]
MIB = 1 << 20
_PHASES: dict[PhaseKind, str] = {"waiting": "d", "prefill": "c", "answer": "a", "tools": "b"}


def page(transcript: Transcript, model: str, result: Result, with_text: bool) -> str:
    """The whole page. Without `with_text` not a word of the transcript is in it: conversations go by number."""
    names = _names(result.rows, with_text)
    files = ", ".join(Path(part.path).name for part in transcript.parts or (transcript,))
    title = f"Replay of {files}" if with_text else "Replay"
    ran = [row for row in result.rows if row.outcome == "run"]
    subtitle = f"{transcript.format} · {model} · {len(ran):,} of {len(result.rows):,} requests"
    parts = [
        f"<h1>{shown(title)}</h1>",
        f"<p class='sub'>{shown(subtitle)}</p>",
        _tiles(result),
        *(_charts(ran, names, result.parallel) if ran else ()),
        _costly(costliest(result.rows), with_text),
        _table(result.rows, names),
    ]
    return _DOCUMENT.format(title=shown(title), style=STYLE, body="\n".join(part for part in parts if part))


_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _names(rows: Sequence[Row], with_text: bool) -> Names:
    """What to call each conversation."""
    names: Names = {}
    for row in rows:
        job = row.planned.job
        number = len(names) + 1
        kind = "" if job.kind == "main" else f" ({job.kind})"
        names.setdefault(job.conversation, (job.title or job.conversation) if with_text else f"{number}{kind}")
    return names


# -- figures ---------------------------------------------------------------------------------------------------------


def _tiles(result: Result) -> str:
    totals, baseline = result.totals, result.baseline()
    cached = f"{totals.cached_tokens:,} of {totals.prompt_tokens:,} prompt tokens"
    tiles = [("cached", _percent(totals.hit_rate), cached)]
    if totals.ttft_ms["p50"]:
        tiles.append(("median TTFT", _seconds(totals.ttft_ms["p50"]), f"95 % under {_seconds(totals.ttft_ms['p95'])}"))
    if baseline is not None and baseline["ratio"]:
        median = _seconds(baseline["ttft_ms"]["p50"])
        tiles.append(("uncached", f"{baseline['ratio']:.1f}×", f"as long; median {median}"))
    if result.wall_s:
        tiles += _run_tiles(result)
    cells = "".join(
        f"<div class='tile'><dt>{shown(name)}</dt><dd>{shown(value)}</dd><p>{shown(more)}</p></div>"
        for name, value, more in tiles
    )
    return f"<dl class='tiles'>{cells}</dl>"


def _run_tiles(result: Result) -> list[tuple[str, str, str]]:
    """What only a run has, a plan hasn't."""
    totals, disk = result.totals, result.disk
    tiles = [
        ("efficiency", _percent(totals.efficiency), "of what was fed before"),
        ("prefill", _seconds(1000 * totals.prefill_s), f"{totals.prefill_tokens:,} tokens"),
        ("disk", _size(disk.bytes_written), f"written; {_size(disk.bytes_read)} read"),
        ("memory", _size(result.peak_bytes), f"at most; {_size(result.after_bytes)} at the end"),
    ]
    if result.parallel > 1:
        pace = "" if result.tokens_per_s is None else f"; {result.tokens_per_s:,.0f} tokens/s"
        tiles.append(("at once", f"{result.at_once:.1f}", f"of {result.parallel} on the average{pace}"))
    return tiles


def _charts(ran: Sequence[Row], names: Names, parallel: int) -> list[str]:
    labels = [f"{row.planned.job.number}" for row in ran]

    def series(name: str, style: str, value: Callable[[RequestStats], float]) -> Series:
        return Series(name, style, [value(row.stats) for row in ran])

    ttft = [series("TTFT", "a", lambda stats: stats.ttft_ms / 1000)]
    if any(row.baseline is not None for row in ran):
        uncached = [row.baseline.ttft_ms / 1000 if row.baseline is not None else 0.0 for row in ran]
        ttft.append(Series("uncached", "c", uncached))
    tokens = [
        series("from memory", "a", lambda stats: stats.cached_live_tokens),
        series("from disk", "b", lambda stats: stats.cached_disk_tokens),
        series("prefilled", "c", lambda stats: stats.prefill_tokens),
    ]
    moved = [
        series("written", "c", lambda stats: stats.checkpoint_bytes / MIB),
        series("read", "b", lambda stats: stats.restore_bytes / MIB),
    ]
    memory = [series("peak", "a", lambda stats: stats.peak_memory_bytes / MIB)]
    spans = [(names[row.planned.job.conversation], row.started_s, row.stats.ttft_ms / 1000, row.ended_s) for row in ran]
    charts = [
        Bars("Time to first token per request", "s", labels, ttft),
        Bars("Prompt tokens: cached and prefilled", "tokens", labels, tokens, stacked=True),
        Bars("Bytes written and read", "MiB", labels, moved),
        Bars("Peak memory", "MiB", labels, memory),
    ]
    made = [bars(chart) for chart in charts if chart.top > 0]
    if parallel > 1:
        made.append(_overlap(ran, names))
    elif any(end for *_, end in spans):
        made.append(timeline("Timeline: until the first token, then the answer", spans))
    return made


def _overlap(ran: Sequence[Row], names: Names) -> str:
    """Each conversation's time, beside that of the others."""
    found = phases(ran)
    kinds = {phase.kind for phase in found}
    legend = [(kind, style) for kind, style in _PHASES.items() if kind in kinds]
    boxes = [(names[one.conversation], _PHASES[one.kind], one.start_s, one.end_s) for one in found]
    return lanes_chart("Timeline: conversations side by side", legend, boxes)


# -- lists -----------------------------------------------------------------------------------------------------------


def _costly(found: Sequence[Costly], with_text: bool) -> str:
    if not found:
        return ""
    items = []
    for one in found:
        difference = one.difference
        where = "" if difference is None else f" From token {difference.position:,} on"
        if difference is not None and with_text:
            was, now = quoted(difference.was), quoted(difference.now)
            where += f": {was} stood there, now {now}"
        items.append(
            f"<li><b>{one.tokens:,} tokens</b>, request {one.row.planned.job.number}: {shown(one.cause)}."
            f"{shown(where)}{'.' if where else ''} <em>{shown(one.remedy[:1].upper() + one.remedy[1:])}.</em></li>"
        )
    return f"<section><h2>What was read again</h2><ol>{''.join(items)}</ol></section>"


_HEADS = (
    *("#", "conversation", "line", "prompt", "padded", "cached", "from disk", "recorded", "new", "TTFT s"),
    *("uncached s", "answer", "written MiB", "read MiB", "peak MiB", "restored", "what changed", "shortfall"),
)


def _table(rows: Sequence[Row], names: Names) -> str:
    heads = "".join(f"<th scope='col'>{shown(head)}</th>" for head in _HEADS)
    body = "".join(f"<tr>{''.join(_cells(row, names))}</tr>" for row in rows)
    return (
        "<section><h2>Requests</h2><div class='wide'><table><thead><tr>"
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _cells(row: Row, names: Names) -> list[str]:
    job, stats, recorded = row.planned.job, row.stats, row.planned.job.usage.cached_tokens
    cells = [f"{job.number}", names[job.conversation], f"{job.line}", f"{stats.prompt_tokens:,}"]
    cells.append(f"{row.planned.padded_tokens:,}" if row.planned.padded_tokens else "")
    if row.outcome != "run":
        blank = len(_HEADS) - len(cells) - 1
        return [f"<td>{shown(cell)}</td>" for cell in cells] + [
            f"<td colspan='{blank + 1}' class='off'>{shown(row.outcome.replace('_', ' '))}</td>"
        ]
    cells += [
        f"{stats.cached_tokens:,}",
        f"{stats.cached_disk_tokens:,}",
        "" if recorded is None else f"{recorded:,}",
        f"{stats.prefill_tokens:,}",
        f"{stats.ttft_ms / 1000:.2f}",
        "" if row.baseline is None else f"{row.baseline.ttft_ms / 1000:.2f}",
        f"{stats.completion_tokens:,}",
        f"{stats.checkpoint_bytes / MIB:.1f}",
        f"{stats.restore_bytes / MIB:.1f}",
        f"{stats.peak_memory_bytes / MIB:.0f}",
        stats.restore_kind,
        stats.divergence.replace("_", " "),
        "" if stats.shortfall_reason == "none" else stats.shortfall_reason.replace("_", " "),
    ]
    return [f"<td>{shown(cell)}</td>" for cell in cells]


def quoted(text: str | None) -> str:
    """A token's text; None is what comes after the last one."""
    return "the end" if text is None else f'"{text}"'


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s"


def _size(count: int) -> str:
    return f"{count / MIB:,.1f} MiB"
