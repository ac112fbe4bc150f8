"""Small charts of what attacks found, as SVG in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpareto.report.paper import Html, safe

SIDE = 190  # pixels
DECADES = 4
INKS = ("var(--front)", "var(--pick)", "var(--one)", "var(--two)")
DASHES = ("", "7 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Curve:
    """How many members are found at each share of false alarms."""

    label: str
    points: Sequence[tuple[float, float]]  # false alarms and members found


def roc(curves: Sequence[Curve], whose: str, attributes: str = "") -> Html:
    """Draw members found against false alarms, both as logarithms."""

    def place(share: float) -> float:
        return SIDE * (1 + max(math.log10(max(share, 1e-9)), -DECADES) / DECADES)

    parts, names = [], []
    for i, curve in enumerate(curves):
        ink, dash = INKS[i % len(INKS)], DASHES[i % len(DASHES)]
        line = " ".join(f"{place(x):.1f},{SIDE - place(y):.1f}" for x, y in curve.points)
        stroke = f'stroke="{ink}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{line}" fill="none" {stroke}/>')
        key = f'<svg width="26" height="8" aria-hidden="true"><path d="M0 4H26" {stroke}/></svg>'
        names.append(f"<span>{key} {safe(curve.label)}</span>")
    chance = f'<path d="M0 {SIDE}L{SIDE} 0" stroke="var(--rail)"/>'
    words = f"{whose}: members found against false alarms, from 0.01 % to 100 %. Thin: chance"
    ends = ("0.01 %", "100 %", "false alarms", "members found")
    return _figure("".join([chance, *parts]), ends, words, attributes, "".join(names))


def scatter(x: Sequence[float], y: Sequence[float], names: tuple[str, str], words: str) -> Html:
    """Draw points; an axis whose numbers span decades is logarithmic."""
    across, up = _places(x), _places(y)
    parts = "".join(
        f'<circle cx="{SIDE * a:.1f}" cy="{SIDE * (1 - b):.1f}" r="3.5" fill="var(--front)" '
        'opacity="0.8"/>'
        for a, b in zip(across, up, strict=True)
    )
    ends = (f"{min(x):.3g}", f"{max(x):.3g}", names[0], f"{names[1]}: {min(y):.3g} to {max(y):.3g}")
    return _figure(parts, ends, words)


def _places(values: Sequence[float]) -> list[float]:
    """Return where numbers lie between the least and the largest, from 0.04 to 0.96."""
    v = np.asarray(values, dtype=np.float64)
    if v.min() > 0 and v.max() / v.min() > 100:
        v = np.log(v)
    placed = 0.04 + 0.92 * (v - v.min()) / np.ptp(v)
    return [float(p) for p in placed]


def _figure(
    drawn: str, ends: tuple[str, str, str, str], words: str, attributes: str = "", key: str = ""
) -> Html:
    """Return a framed square with what its sides mean, and a caption."""
    low, high, across, up = map(safe, ends)
    legend = f'<p class="legend">{key}</p>' if key else ""
    return Html(
        f'<figure {attributes}><svg viewBox="-2 -20 {SIDE + 4} {SIDE + 40}" width="{SIDE + 4}" '
        f'role="img" aria-label="{safe(words)}"><rect width="{SIDE}" height="{SIDE}" fill="none" '
        f'stroke="var(--line)"/>{drawn}<text x="0" y="-7">{up}</text>'
        f'<text x="0" y="{SIDE + 15}">{low}</text>'
        f'<text x="{SIDE / 2}" y="{SIDE + 15}" text-anchor="middle">{across}</text>'
        f'<text x="{SIDE}" y="{SIDE + 15}" text-anchor="end">{high}</text></svg>{legend}'
        f"<figcaption>{safe(words)}</figcaption></figure>\n"
    )
