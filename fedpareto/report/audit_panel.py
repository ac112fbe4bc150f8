"""The part of the page that shows what attacks found of the front's points."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.stats import spearmanr

from fedpareto.federation.measures import MEASURES
from fedpareto.privacy import rounded_up
from fedpareto.report.audit_charts import Curve, roc, scatter
from fedpareto.report.audits import (
    NO_PROOF,
    audits_of,
    claim_of,
    claim_words,
    gain,
    measured,
    outdone,
    percent,
    short,
)
from fedpareto.report.choose import Point
from fedpareto.report.paper import Html, paragraph, safe, table
from fedpareto.report.points import View
from fedpareto.store import Audit
from fedpareto.store.audits import alarm_words

FEWEST = 4  # points of which it can be said that they are ordered alike
ATTACKS: tuple[tuple[str, Callable[[Audit], float | None]], ...] = (
    ("AUC of records", lambda a: measured(a, "auc")),
    ("AUC of clients", lambda a: measured(a, "client_auc")),
    ("dB above the mean image", gain),
    ("line-up outdone", outdone),
)
Found = Sequence[tuple[Point, list[Audit]]]


def panel(seen: View) -> Html:
    """Return what attacks found of the front's points, as html; nothing where none was made."""
    every = [(p, audits_of(seen, p)) for p in seen.front]
    found = [(p, audits) for p, audits in every if audits]
    if not found:
        return Html("")
    parts = [paragraph(NO_PROOF, "note"), *_alarms(found), _choice(), _claims(seen, found)]
    parts += [_members(seen, found), _pictures(seen, found), _ordered(seen, found)]
    region = 'class="scroll" tabindex="0" role="region" aria-label="What attacks found"'
    body = "".join(parts).replace('class="scroll"', region)  # so that keys scroll it
    return Html(
        '<section id="audits" class="card wide">\n<h2>What an attacker really gets '
        f'<span class="of"></span></h2>\n{body}</section>\n'
    )


def _choice() -> Html:
    """Return what says whether the chosen point alone is shown, or every one."""
    return Html(
        '<p id="audits-none" class="note" hidden>This point was not attacked; those that were are '
        'shown.</p>\n<p><label><input type="checkbox" id="audits-every"> every point that was '
        "attacked</label></p>\n"
    )


def _alarms(found: Found) -> list[Html]:
    """Return a line for each alarm."""
    return [
        paragraph(
            f"ALARM: trial {p.trial}, {a.attack}, {a.view}: {alarm_words(a.measures)}.", "beware"
        )
        for p, audits in found
        for a in audits
        if a.measures.get("alarm")
    ]


def _name(seen: View, point: Point) -> str:
    star = " ★" if seen.recommended is point else ""
    rounds = point.settings.get("rounds")
    return f"{point.trial}{f', {rounds} rounds' if rounds is not None else ''}{star}"


def _at(seen: View, point: Point) -> str:
    """Return the attribute by which the page finds what is of a point."""
    place = next(i for i, p in enumerate(seen.points) if p is point)
    return f'data-at="{place}"'


def _first(seen: View, point: Point) -> Html:
    """Return the first cell of a point's row."""
    return Html(f"<td {_at(seen, point)}>{safe(_name(seen, point))}</td>")


def _claims(seen: View, found: Found) -> Html:
    """Return the claimed ε and ε̂ of each point and view, as one bar."""
    rows = []
    for point, audits in found:
        for a in audits:
            both = claim_of(a)
            if both is None:
                continue
            claim, shown = both
            share = min(1.0, shown / claim) if claim > 0 else 0.0
            bar = Html(
                f'<meter min="0" max="1" value="{share:.4f}" '
                f'aria-label="{safe(claim_words(a))}"></meter>'
            )
            many = f"{measured(a, 'canaries') or 0:,.0f}"
            sure = percent(measured(a, "confidence"))
            cells = (_first(seen, point), a.view, rounded_up(claim), f"{shown:.4g}", bar)
            rows.append((*cells, many, sure, str(a.measures.get("form", ""))))
    if not rows:
        return Html("")
    heads = ("trial", "who looks on", "ε", "ε̂", "ε̂ of ε", "canaries", "confidence", "found by")
    return table(heads, rows, "What is claimed, and how much of it canaries showed")


def _members(seen: View, found: Found) -> Html:
    """Return how well members were told, and the curves of each point, on log scales."""
    rows: list[Sequence[object]] = []
    figures: list[Html] = []
    for point, audits in found:
        of_members = [a for a in audits if measured(a, "auc") is not None]
        for a in of_members:
            rates = [percent(measured(a, f"tpr_at_{rate}")) for rate in ("0.001", "0.01")]
            cells = (_first(seen, point), a.view, short(measured(a, "auc")), *rates)
            ends = (measured(a, "client_auc"), measured(a, "shadow_error"))
            rows.append((*cells, *map(short, ends)))
        curves = [c for a in of_members for c in _curves(a)]
        if curves:
            shown = 'class="mine" ' if not figures else ""
            figures.append(roc(curves, f"trial {_name(seen, point)}", shown + _at(seen, point)))
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
    return Html(table(heads, rows, caption) + f'<div class="plots">{"".join(figures)}</div>\n')


def _curves(a: Audit) -> list[Curve]:
    """Return the curves of one attack: records, and clients where they were told."""
    out = []
    for name, what in (("roc", "records"), ("client_roc", "clients")):
        try:
            points = [(float(x), float(y)) for x, y in a.measures.get(name) or []]
        except (TypeError, ValueError, OverflowError):
            continue  # of somebody's own attack, another thing by this name
        if points:
            out.append(Curve(f"{what}, {a.view}", points))
    return out


def _pictures(seen: View, found: Found) -> Html:
    """Return originals and what was rebuilt of them, in order of noise."""
    rows = []
    for point, audits in sorted(found, key=lambda pair: _noise(pair[0])):
        for a in audits:
            if measured(a, "psnr") is None and not a.picture:
                continue
            near = f"{short(measured(a, 'psnr'))} dB"
            near += f" (mean image {short(measured(a, 'psnr_of_mean'))})"
            line_up = f"{percent(measured(a, 'lineup'))} of {measured(a, 'candidates') or 0:,.0f}"
            line_up += f" (chance {percent(measured(a, 'lineup_chance'))})"
            label = percent(measured(a, "label"))
            rows.append((_name(seen, point), a.view, _image(point, a), near, label, line_up))
    if not rows:
        return Html("")
    heads = ("trial", "who looks on", "originals above, rebuilt below", "nearness", "labels")
    caption = "Pictures rebuilt from what clients send, least noise first"
    return table((*heads, "line-up"), rows, caption, "pictures")


def _image(point: Point, a: Audit) -> Html:
    """Return the picture of an attack, as html."""
    if not a.picture:
        return Html("no picture")
    words = f"trial {point.trial}, {a.attack}, {a.view}: originals above, rebuilt below"
    content = base64.b64encode(a.picture).decode()
    return Html(f'<img alt="{safe(words)}" src="data:image/png;base64,{content}">')


def _noise(point: Point) -> float:
    value = point.settings.get("sigma", point.settings.get("noise_multiplier"))
    return float(value) if isinstance(value, int | float) else 0.0


def _ordered(seen: View, found: Found) -> Html:
    """Say how far objectives, ε and proxies order points as attacks do, by Spearman's ρ."""
    views = list(dict.fromkeys(a.view for _, audits in found for a in audits))
    rows, drawn = [], []
    for words, value_of in ATTACKS:
        for view in views:
            attacked = [
                (p, value) for p, audits in found for value in _values(audits, value_of, view)
            ]
            for heading, of, is_objective in _scales(seen):
                pairs = [(v, value) for p, value in attacked for v in [of(p)] if v is not None]
                rho = _rho(pairs)
                if rho is None:
                    continue
                rows.append((heading, f"{words}, {view}", f"{rho:+.2f}", len(pairs)))
                if is_objective:
                    x, y = zip(*pairs, strict=True)
                    caption = f"{words} ({view}) against {heading}: ρ {rho:+.2f}"
                    drawn.append(scatter(x, y, (heading, words), caption))
    if not rows:
        return Html("")
    heads = ("what orders", "attack", "Spearman's ρ", "points")
    caption = "Do these order the points as attacks do? +1: a larger one, a better attack"
    return Html(table(heads, rows, caption) + f'<div class="plots">{"".join(drawn)}</div>\n')


def _values(
    audits: Sequence[Audit], value_of: Callable[[Audit], float | None], view: str
) -> list[float]:
    """Return the last value of an attack from one view, if there is one."""
    values = [v for a in audits if a.view == view for v in [value_of(a)] if v is not None]
    return values[-1:]


def _scales(seen: View) -> Sequence[tuple[str, Callable[[Point], float | None], bool]]:
    """Return what may order points: objectives, then every ε and proxy that was measured."""
    asked = {o.measure for o in seen.objectives}
    others = [name for name in seen.front[0].measures if name not in asked and _orders(name)]
    objectives = [
        (f"{o.name} (proxy)" if o.proxy else o.name, partial(_objective, o.name), True)
        for o in seen.objectives
    ]
    return objectives + [
        (name if name.startswith("epsilon") else f"{name} (proxy)", partial(_measure, name), False)
        for name in others
    ]


def _orders(name: str) -> bool:
    known = MEASURES.get(name)
    return name.startswith("epsilon") or (known is not None and known.proxy is not None)


def _objective(name: str, point: Point) -> float | None:
    return point.objectives[name]


def _measure(name: str, point: Point) -> float | None:
    return point.measures.get(name)


def _rho(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's ρ; None where too few points differ for it to mean anything."""
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    if len(both) < FEWEST or not np.isfinite(both).all() or (np.ptp(both, axis=0) == 0).any():
        return None
    return float(spearmanr(both[:, 0], both[:, 1]).statistic)
