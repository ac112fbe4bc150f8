"""A comparison as one page: hypervolume, fronts, the best under each limit, where fronts end, and which mechanism fits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.front import nondominated
from fedpareto.report.compare import Comparison, Group, comparison_rows
from fedpareto.report.paper import Html, bullets, cell, paragraph, section, sheet, table
from fedpareto.report.privacy import SEEN_BY, epsilon_text
from fedpareto.report.svg import Series, chart, figure, legend
from fedpareto.report.text import short, shown
from fedpareto.space import FloatArray

LEVELS = 6  # of a limit
MOST_DIFFERENCES = 40


def comparison_page(found: Comparison) -> str:
    """Return the comparison as one page of html that needs no script and no network."""
    several = len(found.mechanisms) > 1
    names = " and ".join(found.mechanisms) if several else ", ".join(g.label for g in found.groups)
    parts = [
        paragraph(
            f"{len(found.groups)} stud{'ies' if len(found.groups) > 1 else 'y'} with the objectives "
            f"{', '.join(o.name for o in found.objectives)}, all to be small.",
            "note",
        ),
        *(paragraph(line, "beware") for line in beware(found)),
        _hypervolume(found),
        _fronts(found),
        *_best(found),
        _ends(found),
        _differences(found),
    ]
    return sheet(f"{'Mechanisms' if several else 'Studies'} compared: {names}", "".join(parts))


def write_comparison(found: Comparison, path: Path) -> Path:
    """Write the page and return its path."""
    path.write_text(comparison_page(found), encoding="utf-8")
    return path


def beware(found: Comparison) -> list[str]:
    """Return what must not be compared as it stands, in sentences."""
    lines = []
    for j, o in enumerate(found.objectives):
        measures = sorted({g.objectives[j].measure for g in found.groups})
        if o.proxy and (len(found.mechanisms) > 1 or len(measures) > 1):
            lines.append(
                f"{o.name} is a proxy ({', '.join(measures)}), and every mechanism has a scale of its own: 0.5 of one is not 0.5 "
                f"of another. Neither fronts along {o.name} nor hypervolumes that count it rank mechanisms; the true ε does."
            )
        limits = sorted({str(g.objectives[j].limit) for g in found.groups})
        if len(limits) > 1:
            lines.append(
                f"The limit of {o.name} is not the same in all studies: {', '.join(limits)}."
            )
    if len({json.dumps(_terms(g), sort_keys=True) for g in found.groups}) > 1:
        lines.append(
            "The studies promise on different terms, so their ε are not about the same thing: see clients and privacy under what "
            "differs."
        )
    return lines


def _terms(g: Group) -> dict[str, Any]:
    privacy = g.identity.get("privacy", {})
    return {
        "clients": g.identity.get("data", {}).get("clients"),
        **{
            k: privacy.get(k)
            for k in ("target_delta", "unit", "adjacency", "dropouts", "colluders")
        },
    }


def _view(found: Comparison) -> str:
    """Return whose view the true ε is for: the studies' own where they agree, else the server's."""
    views = {str(g.identity.get("privacy", {}).get("view", "server")) for g in found.groups}
    return views.pop() if len(views) == 1 else "server"


def _heading(found: Comparison, j: int) -> str:
    o = found.objectives[j]
    return f"{o.name} (proxy)" if o.proxy else o.name


def _hypervolume(found: Comparison) -> Html:
    series = []
    for i, g in enumerate(found.groups):
        mean, n = g.curves.mean(0), list(range(1, g.curves.shape[1] + 1))
        spread = g.curves.std(0, ddof=1) if len(g.seeds) > 1 else None
        band = (list(mean - spread), list(mean + spread)) if spread is not None else None
        series.append(
            Series(g.label, n, list(map(float, mean)), i, line="step", marks=False, band=band)
        )
    corner = ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    heads = (
        "study",
        "seeds",
        "evaluations",
        "at a quarter",
        "at half",
        "hypervolume",
        "spread",
        "on the front",
    )
    drawn = chart(
        series,
        "evaluations",
        "hypervolume",
        f"hypervolume over evaluations of {len(series)} studies",
        zero=True,
    )
    return section(
        "Hypervolume over evaluations",
        figure(
            legend(series) + drawn,
            f"Up to the reference point {corner}; mean and standard deviation over seeds.",
        ),
        table(heads, comparison_rows(found)),
    )


def _fronts(found: Comparison) -> Html:
    """Return the fronts on the first two objectives, side by side for three budgets of the third."""
    if len(found.objectives) < 2:
        return Html("")
    fronts = [g.front for g in found.groups]
    everything = np.vstack(fronts)
    spans = (list(map(float, everything[:, 1])), list(map(float, everything[:, 0])))
    panels, series = [], [_series(found, i, fronts[i]) for i in range(len(fronts))]
    for budget in _budgets(found, everything):
        within = [y if budget is None else y[y[:, 2] <= budget] for y in fronts]
        drawn = [
            _series(found, i, y[nondominated(y[:, :2])] if len(y) else y)
            for i, y in enumerate(within)
        ]
        what = f"fronts of {len(fronts)} studies: {found.objectives[0].name} against {found.objectives[1].name}"
        caption = (
            ""
            if budget is None
            else f"{found.objectives[2].name} ≤ {shown(found.objectives[2], budget)}"
        )
        panels.append(
            figure(chart(drawn, _heading(found, 1), _heading(found, 0), what, spans=spans), caption)
        )
    rest = (
        f" One picture for each budget of {found.objectives[2].name}."
        if len(found.objectives) > 2
        else ""
    )
    return section(
        "Fronts",
        paragraph(
            f"Of all seeds together, within each study's own limits. Low and left is better.{rest}",
            "note",
        ),
        legend(series),
        Html(f'<div class="panels">{"".join(panels)}</div>\n') if len(panels) > 1 else panels[0],
    )


def _budgets(found: Comparison, front: FloatArray) -> list[float | None]:
    if len(found.objectives) < 3 or not len(front):
        return [None]
    return [float(v) for v in sorted(set(np.quantile(front[:, 2], [0.33, 0.67, 1.0])))]


def _series(found: Comparison, i: int, y: FloatArray) -> Series:
    y = y[np.argsort(y[:, 1], kind="stable")]
    label = found.groups[i].label
    words = [
        f"{label}: "
        + ", ".join(f"{o.name} {shown(o, v)}" for o, v in zip(found.objectives, row, strict=True))
        for row in y
    ]
    return Series(label, list(map(float, y[:, 1])), list(map(float, y[:, 0])), i, words, "step")


def _best(found: Comparison) -> list[Html]:
    """Return a table for each objective that has a limit, or for all but the first; and one for the true ε where it is none of them."""
    aim, m = found.objectives[0], len(found.objectives)
    limited = [
        j for j in range(1, m) if any(g.objectives[j].limit is not None for g in found.groups)
    ] or list(range(1, m))
    out = []
    for j in limited:
        o, columns = found.objectives[j], [g.y[:, j] for g in found.groups]
        fair = not (
            o.proxy and len({(g.mechanism, g.objectives[j].measure) for g in found.groups}) > 1
        )
        words = (
            ""
            if fair
            else f" {o.name} is a proxy on scales of different mechanisms: read along a column, not across."
        )
        out.append(
            section(
                f"The least {aim.name} for each limit on {_heading(found, j)}",
                paragraph(f"Each study's own limits hold as well.{words}", "note"),
                _limit_table(found, o.name, columns, _levels(columns), fair),
            )
        )
    return out + _by_epsilon(found)


def _by_epsilon(found: Comparison) -> list[Html]:
    view, aim = _view(found), found.objectives[0]
    if any(o.measure.startswith("epsilon") for o in found.objectives):
        return []
    columns = [g.epsilons(view) for g in found.groups]
    without = [
        g.label for g, e in zip(found.groups, columns, strict=True) if not np.isfinite(e).any()
    ]
    nothing = (
        f"No true ε is promised by {', '.join(without)}: without noise, nothing is."
        if without
        else ""
    )
    title = f"The least {aim.name} for each true ε"
    if len(without) == len(found.groups):
        return [section(title, paragraph(nothing))]
    words = (
        f"For {SEEN_BY[view]} (view {view}). This scale means the same for every mechanism. What a run showed on its way counts with "
        f"the ε of the whole run, which is no less. {nothing}"
    )
    return [
        section(
            title,
            paragraph(words, "note"),
            _limit_table(found, "true ε", columns, _levels(columns, most=100.0), True),
        )
    ]


def _levels(columns: Sequence[FloatArray], most: float = math.inf) -> list[float]:
    """Return some limits between the least and the largest of what was found, or what still means something, rounded up to two digits."""
    values = np.concatenate([c[np.isfinite(c)] for c in columns])
    if not len(values):
        return []
    low = float(values.min())
    high = min(max(most, 10 * low), float(values.max()))
    steps = (
        np.geomspace(low, high, LEVELS)
        if low > 0 and high / low > 100
        else np.linspace(low, high, LEVELS)
    )
    return sorted({_rounded_up(float(v)) for v in steps})


def _rounded_up(value: float, digits: int = 2) -> float:
    if value <= 0:
        return value
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return float(f"{math.ceil(value * scale - 1e-9) / scale:.12g}")


def _limit_table(
    found: Comparison, name: str, columns: Sequence[FloatArray], levels: Sequence[float], fair: bool
) -> Html:
    """Return what each study reaches under each limit; where it is fair to compare, the best stands out."""
    rows = []
    for level in levels:
        chosen = [
            _least(g, column <= level) for g, column in zip(found.groups, columns, strict=True)
        ]
        values = [
            math.inf if i is None else float(g.y[i, 0])
            for g, i in zip(found.groups, chosen, strict=True)
        ]
        marked = [fair and len(values) > 1 and v == min(values) < math.inf for v in values]
        rows.append(
            [
                f"≤ {level:g}",
                *(
                    _point(found, g, i, best)
                    for g, i, best in zip(found.groups, chosen, marked, strict=True)
                ),
            ]
        )
    return table((name, *(g.label for g in found.groups)), rows)


def _least(g: Group, holds: Any) -> int | None:
    """Return the row with the least of the first objective among those that hold, the others breaking ties."""
    rows = np.flatnonzero(holds)
    return int(rows[np.lexsort(g.y[rows].T[::-1])[0]]) if len(rows) else None


def _point(found: Comparison, g: Group, row: int | None, best: bool) -> Html:
    if row is None:
        return cell("–")
    at = g.found(row)
    rest = [
        f"{o.name} {shown(o, v)}"
        for o, v in list(zip(found.objectives, at.values, strict=True))[1:]
    ]
    whose = f"trial {at.trial.number}" + (f" of seed {at.seed}" if len(g.seeds) > 1 else "")
    rounds = (
        f" after {g.rounds[row]} round{'s' if g.rounds[row] > 1 else ''}" if g.rounds[row] else ""
    )
    return cell(
        shown(found.objectives[0], at.values[0]),
        ", ".join([*rest, *_epsilon(found, g, row), whose + rounds]),
        best,
    )


def _epsilon(found: Comparison, g: Group, row: int) -> list[str]:
    """Return the true ε of a row in words, unless it is an objective and stands there already."""
    if any(o.measure.startswith("epsilon") for o in found.objectives):
        return []
    stated = epsilon_text(float(g.epsilons(_view(found))[row]))
    return [f"true ε {'≤ ' if g.rounds[row] and stated != 'none' else ''}{stated}"]


def _ends(found: Comparison) -> Html:
    """Return the least of each objective that each front reaches, and what it costs there."""
    rows: list[list[Any]] = []
    for g in found.groups:
        line: list[Any] = [f"{g.label}: {g.mechanism}"]
        for j, o in enumerate(found.objectives):
            if not len(g.kept):
                line.append("nothing within the limits")
                continue
            row = int(min(g.kept, key=lambda i: (g.y[i, j], *g.y[i])))
            at = g.found(row)
            others = [
                f"{p.name} {shown(p, v)}"
                for k, (p, v) in enumerate(zip(found.objectives, at.values, strict=True))
                if k != j
            ]
            line.append(
                cell(
                    shown(o, at.values[j]),
                    ", ".join([*others, *_epsilon(found, g, row), f"trial {at.trial.number}"]),
                )
            )
        rows.append(line)
    heads = (
        "study and mechanism",
        *(f"least {_heading(found, j)}" for j in range(len(found.objectives))),
    )
    return section(
        "Where each front ends",
        paragraph(
            "The least of each objective that a study reached within its limits, and what the "
            "others are there. Beyond these ends it has nothing to offer.",
            "note",
        ),
        table(heads, rows),
    )


def _differences(found: Comparison) -> Html:
    flat = [_flat(g.identity) for g in found.groups]
    keys = [
        k
        for k in dict.fromkeys(k for table in flat for k in table)
        if len({json.dumps(f.get(k), sort_keys=True) for f in flat}) > 1
    ]
    if not keys:
        return Html("")
    more = [f"and {len(keys) - MOST_DIFFERENCES} more"] if len(keys) > MOST_DIFFERENCES else []
    rows = [[key, *(_shown(f.get(key)) for f in flat)] for key in keys[:MOST_DIFFERENCES]]
    return section(
        "What differs between the studies",
        table(("key", *(g.label for g in found.groups)), rows, kind="words"),
        bullets(more),
    )


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return a nested table as dotted keys; a range stays whole."""
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        value = {str(v.get("name", i)): v for i, v in enumerate(value, 1)}
    if not isinstance(value, Mapping) or {"low", "choices"} & set(value):
        return {key: value}
    return {
        k: v
        for name, inner in value.items()
        for k, v in _flat(inner, f"{key}.{name}" if key else str(name)).items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "low" in value:
        return (
            f"{short(value['low'])} to {short(value['high'])}{', log' if value.get('log') else ''}"
        )
    if isinstance(value, Mapping) and "choices" in value:
        return "one of " + ", ".join(map(str, value["choices"]))
    return "–" if value is None else str(value)
