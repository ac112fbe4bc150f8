"""Draw charts as SVG text, without script and without matplotlib: points, lines and bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedpareto.report.paper import Html, safe

WIDTH = 640
HEIGHT = 400
LEFT = 74
RIGHT = 16
TOP = 14
BOTTOM = 52
COLOURS = 8
SHAPES = (
    "M0-4.5A4.5 4.5 0 1 1 0 4.5A4.5 4.5 0 1 1 0-4.5Z",
    "M-4-4H4V4H-4Z",
    "M0-5.5L5 4H-5Z",
    "M0-6L6 0L0 6L-6 0Z",
    "M0 5.5L5-4H-5Z",
    "M-5-1.5H-1.5V-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5Z",
    "M-5-3L5 0L-5 3Z",
    "M5-3L-5 0L5 3Z",
)


@dataclass(frozen=True)
class Series:
    """Points of one kind, in the order in which a line joins them."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    # One of eight that colour-blind readers can distinguish; each has a shape of its own.
    colour: int = 0
    words: Sequence[str] = ()  # the tooltip of each point
    line: str = ""  # "", "straight" or "step"
    marks: bool = True
    band: tuple[Sequence[float], Sequence[float]] | None = None  # least and most y
    faint: bool = False

    @property
    def shape(self) -> str:
        """Return the path of one mark; faint ones are round."""
        if self.faint:
            return SHAPES[0]
        return SHAPES[self.colour % len(SHAPES)]

    @property
    def opacity(self) -> float:
        """Return how solid the marks are."""
        return 0.35 if self.faint else 1

    @property
    def heights(self) -> list[float]:
        """Return every y that must be on the chart: of the points and of the band."""
        low, high = self.band or ((), ())
        return [*self.y, *low, *high]


@dataclass(frozen=True)
class Axis:
    """A mapping from a range of numbers to a range of pixels."""

    low: float
    high: float
    start: float  # pixel of low
    end: float  # pixel of high
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low = self.low
        high = self.high
        if self.log:
            low = math.log10(low)
            high = math.log10(high)
            value = math.log10(value)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Return round numbers within the range."""
        if self.log and self.high / self.low >= 8:
            return self._log_ticks()
        step = nice((self.high - self.low) / 6)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self) -> list[float]:
        """Return 1, 2, 5, 10, … within the range; powers of ten alone if there are many."""
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        found = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
        inside = [v for v in found if self.low <= v <= self.high]
        if len(inside) <= 7:
            return inside
        return [v for v in inside if round(math.log10(v), 9).is_integer()]


def nice(value: float) -> float:
    """Return the least of …, 1, 2, 5, 10, … that is not below the value."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))


def axis(values: Sequence[float], start: float, end: float, zero: bool = False) -> Axis:
    """Return an axis for some numbers; it is logarithmic if they span more than two decades."""
    values = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low = min(values)
    high = max(values)
    if low > 0 and high / low > 100 and not zero:
        return Axis(low / 1.25, high * 1.25, start, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    if zero:
        bottom = min(low, 0.0)
    elif low < 0:
        bottom = low - room
    else:
        bottom = max(low - room, 0.0)
    return Axis(bottom, high + room, start, end)


def chart(
    series: Sequence[Series],
    x_name: str,
    y_name: str,
    what: str,
    limits: tuple[float | None, float | None] = (None, None),
    ring: tuple[float, float] | None = None,
    zero: bool = False,
    spans: Sequence[Sequence[float]] = ((), ()),
) -> Html:
    """Return a chart, with a text `what` for readers who cannot see it.

    limits are drawn as dashed lines, ring as a circle around the chosen point. spans hold numbers
    that the axes must reach beside those shown, so that several charts can share their axes.
    """
    xs = [v for s in series for v in s.x] + list(spans[0])
    ys = [v for s in series for v in s.heights] + list(spans[1])
    if ring:
        xs.append(ring[0])
        ys.append(ring[1])
    if limits[0] is not None:
        xs.append(limits[0])
    if limits[1] is not None:
        ys.append(limits[1])
    x = axis(xs, LEFT, WIDTH - RIGHT)
    y = axis(ys, HEIGHT - BOTTOM, TOP, zero)
    parts = [*_frame(x, y, x_name, y_name), *_limits(x, y, limits)]
    for s in series:
        parts += _series(s, x, y)
    if ring:
        place = f'cx="{x(ring[0])}" cy="{y(ring[1])}"'
        parts.append(f'<circle class="ring" {place} r="10"><title>chosen</title></circle>')
    return Html(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{safe(what)}">{"".join(parts)}</svg>\n'
    )


def _frame(x: Axis, y: Axis, x_name: str, y_name: str) -> list[str]:
    """Return grid lines, the numbers at them, and the names of the axes."""
    parts = []
    for v in x.ticks:
        parts.append(
            f'<line class="grid" x1="{x(v)}" x2="{x(v)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text x="{x(v)}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{v:g}</text>'
        )
    for v in y.ticks:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v)}" y2="{y(v)}"/>'
            f'<text x="{LEFT - 7}" y="{y(v) + 4}" text-anchor="end">{v:g}</text>'
        )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" '
        f'text-anchor="middle">{safe(x_name)}</text><text class="name" transform="translate(16 '
        f'{middle}) rotate(-90)" text-anchor="middle">{safe(y_name)}</text>'
    )
    return parts


def _limits(x: Axis, y: Axis, limits: tuple[float | None, float | None]) -> list[str]:
    """Return a line across the chart for each limit that there is."""
    parts = []
    if limits[0] is not None:
        parts.append(
            f'<line class="limit" x1="{x(limits[0])}" x2="{x(limits[0])}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/>'
        )
    if limits[1] is not None:
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(limits[1])}" '
            f'y2="{y(limits[1])}"/>'
        )
    return parts


def _series(s: Series, x: Axis, y: Axis) -> list[str]:
    """Return the band, the line and the marks of a series, whichever it has."""
    places = [(x(a), y(b)) for a, b in zip(s.x, s.y, strict=True)]
    colour = f"c{s.colour % COLOURS}"
    parts = []
    if s.band:
        low, high = s.band
        there = zip(s.x, high, strict=True)
        back = reversed(list(zip(s.x, low, strict=True)))
        corners = " ".join(f"{x(a)},{y(b)}" for a, b in (*there, *back))
        parts.append(f'<polygon class="band {colour}" points="{corners}"/>')
    if s.line and len(places) > 1:
        a, b = places[0]
        parts.append(f'<path class="{colour} line" d="M{a} {b}{_path(places[1:], s.line)}"/>')
    if s.marks:
        words = [*s.words, *[""] * (len(places) - len(s.words))]
        for (a, b), text in zip(places, words, strict=True):
            title = f"<title>{safe(text)}</title>" if text else ""
            parts.append(
                f'<path class="{colour}" opacity="{s.opacity}" transform="translate({a} '
                f'{b})" d="{s.shape}">{title}</path>'
            )
    return parts


def _path(places: Sequence[tuple[float, float]], line: str) -> str:
    """Return the rest of an SVG path through places, straight or in steps."""
    if line == "step":
        return "".join(f"H{a}V{b}" for a, b in places)
    return "".join(f"L{a} {b}" for a, b in places)


def legend(series: Sequence[Series]) -> Html:
    """Return a legend: the mark of each series and its label."""
    items = [
        f'<li><svg viewBox="-7 -7 14 14" aria-hidden="true"><path class="c{s.colour % COLOURS}" '
        f'opacity="{s.opacity}" d="{s.shape}"/></svg>{safe(s.label)}</li>'
        for s in series
    ]
    return Html(f'<ul class="legend">{"".join(items)}</ul>\n')


def figure(drawing: str, caption: str = "") -> Html:
    """Return a drawing with its caption."""
    below = f"<figcaption>{safe(caption)}</figcaption>" if caption else ""
    return Html(f"<figure>{drawing}{below}</figure>\n")
