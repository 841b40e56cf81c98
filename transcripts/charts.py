"""Charts as inline SVG, drawn here so that the page needs no script. Colours come from the page's style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 960, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 26
_MOST_LABELS = 24
_LANE = 22


@dataclass(frozen=True)
class Series:
    """One colour of a chart, a value for each request. `style`: a, b or c."""

    name: str
    style: str
    values: Sequence[float]


@dataclass(frozen=True)
class Bars:
    """A bar chart: series beside each other, or stacked."""

    title: str
    unit: str
    labels: Sequence[str]
    series: Sequence[Series]
    stacked: bool = False

    @property
    def top(self) -> float:
        """The highest bar."""
        columns = list(zip(*(one.values for one in self.series), strict=True))
        return max((sum(column) if self.stacked else max(column) for column in columns), default=0.0)


def bars(chart: Bars) -> str:
    """The chart with its title and legend."""
    ticks = _ticks(chart.top)
    top = ticks[-1]
    slot = (WIDTH - _LEFT - _RIGHT) / max(1, len(chart.labels))
    shapes = [_grid(ticks), *_bars(chart, top, slot), *_labels(chart.labels, slot)]
    return _figure(chart.title, chart.unit, [(one.name, one.style) for one in chart.series], HEIGHT, shapes)


def timeline(title: str, spans: Sequence[tuple[str, float, float, float]]) -> str:
    """(lane, start, seconds to the first token, end) of each request, a lane under another, time to the right."""
    boxes = [(lane, "c", start, start + first) for lane, start, first, _ in spans]
    boxes += [(lane, "a", start + first, end) for lane, start, first, end in spans]
    return lanes_chart(title, [("to the first token", "c"), ("answer", "a")], boxes)


def lanes_chart(title: str, legend: Sequence[tuple[str, str]], boxes: Sequence[tuple[str, str, float, float]]) -> str:
    """(lane, style, start, end) of each box, a lane under another, time to the right; (name, style) in the legend."""
    lanes = list(dict.fromkeys(lane for lane, *_ in boxes))
    ticks = _ticks(max((end for *_, end in boxes), default=0.0))
    height = _TOP + _LANE * len(lanes) + _BOTTOM
    scale = (WIDTH - _LEFT - _RIGHT) / ticks[-1]
    shapes = []
    for tick in ticks:
        x = _LEFT + tick * scale
        shapes.append(f"<line class='grid' x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP}' y2='{height - _BOTTOM}'/>")
        where = "mid" if tick < ticks[-1] else "end"  # the last one would run out of the picture
        shapes.append(f"<text class='tick {where}' x='{x:.1f}' y='{height - 8}'>{_number(tick)}</text>")
    for index, lane in enumerate(lanes):
        y = _TOP + _LANE * index
        shapes.append(f"<text class='tick end' x='{_LEFT - 6}' y='{y + 14}'>{shown(_short(lane))}</text>")
        for name, style, start, end in boxes:
            if name == lane:
                shapes.append(_box(style, _LEFT + start * scale, y + 3, (end - start) * scale, _LANE - 6))
    return _figure(title, "s", legend, height, shapes)


def _figure(title: str, unit: str, legend: Sequence[tuple[str, str]], height: int, shapes: Sequence[str]) -> str:
    keys = "".join(f"<span class='key {style}'>{shown(name)}</span>" for name, style in legend)
    return (
        f"<section><h2>{shown(title)} <small>{shown(unit)}</small></h2><p class='keys'>{keys}</p>"
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{shown(title)}'>"
        f"{''.join(shapes)}</svg></section>"
    )


def _grid(ticks: Sequence[float]) -> str:
    out = []
    for tick in ticks:
        y = _y(tick, ticks[-1])
        out.append(f"<line class='grid' x1='{_LEFT}' x2='{WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>")
        out.append(f"<text class='tick end' x='{_LEFT - 6}' y='{y + 4:.1f}'>{_number(tick)}</text>")
    return "".join(out)


def _bars(chart: Bars, top: float, slot: float) -> list[str]:
    out = []
    count = 1 if chart.stacked else len(chart.series)
    width = 0.8 * slot / count
    for index in range(len(chart.labels)):
        left, below = _LEFT + slot * (index + 0.1), 0.0
        for number, series in enumerate(chart.series):
            value = series.values[index]
            x = left if chart.stacked else left + number * width
            y = _y(below + value, top)
            out.append(_box(series.style, x, y, width, _y(below, top) - y))
            below += value if chart.stacked else 0.0
    return out


def _labels(labels: Sequence[str], slot: float) -> list[str]:
    step = max(1, ceil(len(labels) / _MOST_LABELS))
    return [
        f"<text class='tick mid' x='{_LEFT + slot * (index + 0.5):.1f}' y='{HEIGHT - 8}'>{shown(label)}</text>"
        for index, label in enumerate(labels)
        if index % step == 0
    ]


def _box(style: str, x: float, y: float, width: float, height: float) -> str:
    if width <= 0 or height <= 0:
        return ""
    return f"<rect class='{style}' x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.5):.1f}' height='{height:.1f}'/>"


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)


def _ticks(top: float) -> list[float]:
    """From 0 to at least `top`, four or five steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / 4
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * i for i in range(ceil(top / step - 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def shown(text: str) -> str:
    """Text as HTML text, quotes too; control characters as their escapes, so that they are seen and do nothing."""
    visible = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return escape("".join(visible))


def _short(text: str) -> str:
    return text if len(text) <= 8 else f"{text[:7]}…"
