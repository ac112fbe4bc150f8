"""Charts as SVG text, without script and without matplotlib: points, lines and bands on two axes, each mark with its words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedpareto.report.paper import Html, safe

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 16, 14, 52
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
    colour: int = 0  # which of eight, apart for colour-blind readers; each has a shape of its own
    words: Sequence[str] = ()  # what each point says when pointed at
    line: str = ""  # "", "straight" or "step"
    marks: bool = True
    band: tuple[Sequence[float], Sequence[float]] | None = None  # least and most y
    faint: bool = False

    @property
    def shape(self) -> str:
        return SHAPES[0 if self.faint else self.colour % len(SHAPES)]


@dataclass(frozen=True)
class Axis:
    """A range of numbers along some pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Return round numbers within the range."""
        if self.log and self.high / self.low >= 8:
            found = [
                m * 10.0**e
                for e in range(
                    math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1
                )
                for m in (1, 2, 5)
            ]
            inside = [v for v in found if self.low <= v <= self.high]
            return (
                inside
                if len(inside) <= 7
                else [v for v in inside if round(math.log10(v), 9).is_integer()]
            )
        step = nice((self.high - self.low) / 6)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice(value: float) -> float:
    """Return the next of 1, 2, 5, 10, … that is no less."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))


def axis(values: Sequence[float], start: float, end: float, zero: bool = False) -> Axis:
    """Return an axis for some numbers; a logarithmic one where they span more than two powers of ten."""
    values = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(values), max(values)
    if low > 0 and high / low > 100 and not zero:
        return Axis(low / 1.25, high * 1.25, start, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    return Axis(
        min(low, 0.0) if zero else low - room if low - room > 0 or low < 0 else 0.0,
        high + room,
        start,
        end,
    )


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
    """Return a chart that says what it shows; limits are drawn as dashed lines, a ring around the point chosen.

    spans hold numbers that the axes must reach beside those shown, so that several charts can share their axes.
    """
    marks = [*([ring] if ring else [])]
    xs = [
        *(v for s in series for v in s.x),
        *(p[0] for p in marks),
        *([limits[0]] if limits[0] is not None else []),
        *spans[0],
    ]
    ys = [
        *(
            v
            for s in series
            for v in (*s.y, *(s.band[0] if s.band else ()), *(s.band[1] if s.band else ()))
        ),
        *(p[1] for p in marks),
        *([limits[1]] if limits[1] is not None else []),
        *spans[1],
    ]
    x, y = axis(xs, LEFT, WIDTH - RIGHT), axis(ys, HEIGHT - BOTTOM, TOP, zero)
    parts = [*_frame(x, y, x_name, y_name), *_limits(x, y, limits)]
    for s in series:
        parts += _series(s, x, y)
    parts += [
        f'<circle class="ring" cx="{x(px)}" cy="{y(py)}" r="10"><title>chosen</title></circle>'
        for px, py in marks
    ]
    return Html(
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(what)}">{"".join(parts)}</svg>\n'
    )


def _frame(x: Axis, y: Axis, x_name: str, y_name: str) -> list[str]:
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
        f'<text class="name" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{safe(x_name)}</text>'
        f'<text class="name" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{safe(y_name)}</text>'
    )
    return parts


def _limits(x: Axis, y: Axis, limits: tuple[float | None, float | None]) -> list[str]:
    parts = []
    if limits[0] is not None:
        parts.append(
            f'<line class="limit" x1="{x(limits[0])}" x2="{x(limits[0])}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        )
    if limits[1] is not None:
        parts.append(
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(limits[1])}" y2="{y(limits[1])}"/>'
        )
    return parts


def _series(s: Series, x: Axis, y: Axis) -> list[str]:
    places = [(x(a), y(b)) for a, b in zip(s.x, s.y, strict=True)]
    colour, parts = f"c{s.colour % COLOURS}", []
    if s.band:
        around = [
            *zip(s.x, s.band[1], strict=True),
            *reversed(list(zip(s.x, s.band[0], strict=True))),
        ]
        parts.append(
            f'<polygon class="band {colour}" points="{" ".join(f"{x(a)},{y(b)}" for a, b in around)}"/>'
        )
    if s.line and len(places) > 1:
        corner = [f"H{a}V{b}" if s.line == "step" else f"L{a} {b}" for a, b in places[1:]]
        parts.append(
            f'<path class="{colour} line" d="M{places[0][0]} {places[0][1]}{"".join(corner)}"/>'
        )
    if s.marks:
        shape = s.shape
        words = [*s.words, *[""] * (len(places) - len(s.words))]
        parts += [
            f'<path class="{colour}" opacity="{0.35 if s.faint else 1}" transform="translate({a} {b})" d="{shape}">'
            + (f"<title>{safe(text)}</title>" if text else "")
            + "</path>"
            for (a, b), text in zip(places, words, strict=True)
        ]
    return parts


def legend(series: Sequence[Series]) -> Html:
    """Return which mark is whose."""
    items = [
        f'<li><svg viewBox="-7 -7 14 14" aria-hidden="true"><path class="c{s.colour % COLOURS}" opacity="{0.35 if s.faint else 1}" '
        f'd="{s.shape}"/></svg>{safe(s.label)}</li>'
        for s in series
    ]
    return Html(f'<ul class="legend">{"".join(items)}</ul>\n')


def figure(drawing: str, caption: str = "") -> Html:
    below = f"<figcaption>{safe(caption)}</figcaption>" if caption else ""
    return Html(f"<figure>{drawing}{below}</figure>\n")
