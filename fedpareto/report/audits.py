"""What attacks on points found, for the page, the evidence and `front --json`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fedpareto.privacy import rounded_up
from fedpareto.report.choose import Point
from fedpareto.report.paper import Html, paragraph, safe, table
from fedpareto.report.points import View
from fedpareto.store import Audit
from fedpareto.store.audits import number, pairs

NO_PROOF = (
    "A failed attack proves nothing: a better one may succeed. An ε̂ is a lower bound on what the "
    "mechanism leaks, never an upper one; what is promised is the ε."
)
FEWEST = 4  # points of which it can be said that they are ordered alike
SIDE = 180  # pixels of the drawn curve
DECADES = 4
ATTACKS = (("auc", "AUC of records"), ("client_auc", "AUC of clients"), ("psnr", "nearness"))


def audits_of(seen: View, point: Point) -> list[Audit]:
    """Return what attacks found of a point."""
    return [a for a in seen.audits if (a.trial, a.settings) == (point.trial, _plain(point))]


def _plain(point: Point) -> Any:
    return json.loads(json.dumps(point.settings))


def as_data(seen: View, point: Point) -> list[dict[str, Any]]:
    """Return what attacks found of a point as plain data; pictures stay in the database."""
    return [
        {"attack": a.attack, "view": a.view, "seed": a.seed, "measures": a.measures}
        for a in audits_of(seen, point)
    ]


def panel(seen: View) -> Html:
    """Return what attacks found of the front's points, as html; nothing where none was made."""
    found = [(p, audits_of(seen, p)) for p in seen.front]
    found = [(p, audits) for p, audits in found if audits]
    if not found:
        return Html("")
    parts = [paragraph(NO_PROOF, "note"), *_alarms(found), _claims(seen, found)]
    parts += [_members(seen, found), _pictures(seen, found), _ordered(seen, found)]
    return Html(
        '<section id="audits" class="card wide">\n<h2>What an attacker really gets</h2>\n'
        f"{''.join(parts)}</section>\n"
    )


Found = Sequence[tuple[Point, list[Audit]]]


def _alarms(found: Found) -> list[Html]:
    """Return a line for each alarm."""
    return [
        paragraph(
            f"ALARM: trial {p.trial}, {a.attack}, {a.view}: "
            f"{a.measures.get('why') or 'ε̂ is above the claim, twice with fresh randomness'}.",
            "beware",
        )
        for p, audits in found
        for a in audits
        if a.measures.get("alarm")
    ]


def _name(seen: View, point: Point) -> str:
    star = " ★" if seen.recommended is point else ""
    rounds = point.settings.get("rounds")
    return f"{point.trial}{f', {rounds} rounds' if rounds is not None else ''}{star}"


def _claims(seen: View, found: Found) -> Html:
    """Return the claimed ε and ε̂ of each point and view, as one bar."""
    rows = []
    for point, audits in found:
        for a in audits:
            claim, shown = (number(a.measures, name) for name in ("epsilon", "epsilon_hat"))
            if claim is None or shown is None:
                continue
            share = min(1.0, shown / claim) if claim > 0 else 0.0
            bar = Html(
                f'<meter min="0" max="1" value="{share:.4f}" '
                f'aria-label="ε̂ {shown:.4g} of ε {safe(rounded_up(claim))}"></meter>'
            )
            many = f"{number(a.measures, 'canaries') or 0:,.0f}"
            sure = f"{100 * (number(a.measures, 'confidence') or 0):.4g} %"
            cells = (_name(seen, point), a.view, rounded_up(claim), f"{shown:.4g}", bar)
            rows.append((*cells, many, sure, str(a.measures.get("form", ""))))
    if not rows:
        return Html("")
    heads = ("trial", "who looks on", "ε", "ε̂", "ε̂ of ε", "canaries", "confidence", "found by")
    return table(heads, rows, "What is claimed, and how much of it canaries showed")


def _members(seen: View, found: Found) -> Html:
    """Return how well members were told, and the curve of the first point, on log scales."""
    rows, curve = [], None
    for point, audits in found:
        for a in audits:
            m = a.measures
            if "auc" not in m:
                continue
            if curve is None or seen.recommended is point:
                curve = _curve(pairs(m, "roc"), f"trial {_name(seen, point)}, {a.view}")
            rates = [_percent(m, f"tpr_at_{rate}") for rate in ("0.001", "0.01")]
            cells = (_name(seen, point), a.view, _short(m, "auc"), *rates)
            rows.append((*cells, _short(m, "client_auc"), _short(m, "shadow_error")))
    if not rows:
        return Html("")
    heads = (
        "trial",
        "who looks on",
        "AUC",
        "found at 0.1 %",
        "at 1 % false alarms",
        "AUC of clients",
        "test error of shadows",
    )
    caption = "Membership: 0.5 is chance. Shadows train on half of the data, so they err more"
    return Html(table(heads, rows, caption) + (curve or ""))


def _curve(points: Sequence[Sequence[float]], whose: str) -> Html:
    """Draw members found against false alarms, both as logarithms."""

    def place(share: float) -> float:
        return SIDE * (1 + max(math.log10(max(share, 1e-9)), -DECADES) / DECADES)

    line = " ".join(f"{place(x):.1f},{SIDE - place(y):.1f}" for x, y in points)
    words = (
        f"Members found against false alarms, each from 0.01 % to 100 %: {whose}. Dashed: chance."
    )
    return Html(
        f'<figure><svg viewBox="-4 -4 {SIDE + 8} {SIDE + 8}" width="{SIDE}" height="{SIDE}" '
        f'role="img" aria-label="{safe(words)}" fill="none" stroke="currentColor">'
        f'<rect width="{SIDE}" height="{SIDE}" opacity="0.3"/>'
        f'<path d="M0 {SIDE}L{SIDE} 0" stroke-dasharray="4 4" opacity="0.5"/>'
        f'<polyline points="{line}" stroke-width="2"/></svg>'
        f"<figcaption>{safe(words)}</figcaption></figure>\n"
    )


def _pictures(seen: View, found: Found) -> Html:
    """Return originals and what was rebuilt of them, in order of noise."""
    rows = []
    for point, audits in sorted(found, key=lambda pair: _noise(pair[0])):
        for a in audits:
            m = a.measures
            if "psnr" not in m:
                continue
            picture = Html("no picture")
            if a.picture:
                words = f"trial {point.trial}: originals above, rebuilt below"
                content = base64.b64encode(a.picture).decode()
                picture = Html(
                    f'<img alt="{safe(words)}" style="max-width:100%" '
                    f'src="data:image/png;base64,{content}">'
                )
            near = f"{_short(m, 'psnr')} dB (mean image {_short(m, 'psnr_of_mean')})"
            line_up = f"{_percent(m, 'lineup')} of {number(m, 'candidates') or 0:,.0f} (chance "
            line_up += f"{_percent(m, 'lineup_chance')})"
            rows.append((_name(seen, point), picture, near, _percent(m, "label"), line_up))
    if not rows:
        return Html("")
    heads = ("trial", "originals, and what was rebuilt below", "nearness", "labels", "line-up")
    return table(heads, rows, "Pictures rebuilt from uploads, least noise first")


def _noise(point: Point) -> float:
    value = point.settings.get("sigma", point.settings.get("noise_multiplier"))
    return float(value) if isinstance(value, int | float) else 0.0


def _ordered(seen: View, found: Found) -> Html:
    """Say how far objectives order points as attacks do, by Spearman's ρ."""
    rows_of = []
    for name, words in ATTACKS:
        rows = [
            (p, value)
            for p, audits in found
            for value in [_last(audits, name)]
            if value is not None
        ]
        for o in seen.objectives:
            pairs = np.array([[p.objectives[o.name], value] for p, value in rows])
            if len(pairs) < FEWEST or (np.ptp(pairs, axis=0) == 0).any():
                continue
            rho = float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
            proxy = " (proxy)" if o.proxy else ""
            rows_of.append((f"{o.name}{proxy}", words, f"{rho:+.2f}", len(pairs)))
    if not rows_of:
        return Html("")
    heads = ("objective", "attack", "Spearman's ρ", "points")
    caption = "Do objectives order the points as attacks do? +1: a larger one, a better attack"
    return table(heads, rows_of, caption)


def _last(audits: Sequence[Audit], name: str) -> float | None:
    values = [value for a in audits if (value := number(a.measures, name)) is not None]
    return values[-1] if values else None


def lines(seen: View, point: Point | None) -> list[str]:
    """Return what attacks found of a point, a line each, for the file."""
    if point is None:
        return []
    found = []
    for a in audits_of(seen, point):
        m: Mapping[str, Any] = a.measures
        claim, shown = number(m, "epsilon"), number(m, "epsilon_hat")
        if claim is not None and shown is not None:
            many = f"{number(m, 'canaries') or 0:,.0f} canaries"
            what = f"ε̂ {shown:.4g} of ε {rounded_up(claim)}, {many}"
        elif "auc" in m:
            what = f"records told with AUC {_short(m, 'auc')}, clients {_short(m, 'client_auc')}"
        elif "psnr" in m:
            mean = _short(m, "psnr_of_mean")
            what = f"pictures at {_short(m, 'psnr')} dB, the mean image at {mean}"
        else:
            what = f"least likely of its checks {_short(m, 'least')}"
        alarm = ". ALARM, found twice" if m.get("alarm") else ""
        found.append(f"{a.attack}, {a.view}: {what}{alarm} (fedpareto {a.version}, seed {a.seed})")
    return [*found, NO_PROOF] if found else []


def _short(measures: Mapping[str, Any], name: str) -> str:
    value = number(measures, name)
    return "–" if value is None else f"{value:.3g}"


def _percent(measures: Mapping[str, Any], name: str) -> str:
    value = number(measures, name)
    return "–" if value is None else f"{100 * value:.3g} %"
