"""What a study shows, as text for a terminal and as JSON or CSV for programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.table import Table
from rich.text import Text

from fedpareto.privacy import rounded_up
from fedpareto.problem import Judge
from fedpareto.report.against import as_data as baselines
from fedpareto.report.audits import as_data as audits
from fedpareto.report.choose import Point
from fedpareto.report.points import View
from fedpareto.report.privacy import as_data, epsilon_heading, epsilon_text
from fedpareto.words import short, visible


def as_cell(value: Any) -> Text:
    """Return a value for a table of rich, which takes nothing in it for markup."""
    return Text(visible(short(value)))


def package_versions() -> dict[str, str | None]:
    """Return the versions of what the numbers rest on; None where a package is missing."""
    return {name: _version(name) for name in ("torch", "numpy", "dp-accounting")}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def shown(objective: Judge, value: float) -> str:
    """Return the value of an objective or a limit as people read it; an ε rounds up."""
    return rounded_up(value) if objective.measure.startswith("epsilon") else short(value)


def spread_of(point: Point, measure: str) -> float | None:
    """Return a measure's spread over repeats; what is only rounding error is 0."""
    apart = point.spread.get(measure)
    if apart is None or not math.isfinite(apart):
        return None
    return 0.0 if apart <= 1e-9 * abs(point.measures.get(measure, 0.0)) else apart


def column(objective: Judge) -> str:
    """Return the heading of an objective or a limit; a proxy says that it is one."""
    text = objective.name if objective.limit is None else f"{objective.name} ≤ {objective.limit:g}"
    return f"{text} (proxy)" if objective.proxy else text


def proxies(objectives: tuple[Judge, ...]) -> list[str]:
    """Return a sentence for each objective or limit that is only a proxy."""
    return [
        f"{o.name} is a proxy ({o.proxy}), not a privacy guarantee." for o in objectives if o.proxy
    ]


def table(seen: View, most: int = 12) -> Table:
    """Return the front as a table of some `most` rows: ★ is recommended, ◆ the knee beside it."""
    names = [*(seen.front[0].settings if seen.front else ())]
    out = Table(box=None, pad_edge=False, header_style="bold")
    true = epsilon_heading(seen)
    for heading in ["", "trial", *map(column, seen.judges), *true, *names]:
        out.add_column(as_cell(heading), justify="right", no_wrap=True)
    for point in thinned(seen, most):
        star = "★" if point is seen.recommended else ""
        mark = star or ("◆" if point is seen.knee else "")
        goals = [shown(o, point.judged[o.name]) for o in seen.judges]
        values = [
            *goals,
            *[epsilon_text(point.measures.get("epsilon")) for _ in true],
            *point.settings.values(),
        ]
        out.add_row(
            mark, str(point.trial), *map(as_cell, values), style="bold green" if star else None
        )
    return out


def thinned(seen: View, most: int) -> list[Point]:
    """Return some `most` points of the front, evenly spread, the recommended ones among them."""
    front = list(seen.front)
    if len(front) <= most:
        return front
    rows = {round(i * (len(front) - 1) / (most - 1)) for i in range(most)}
    rows |= {front.index(p) for p in (seen.recommended, seen.knee) if p is not None}
    return [front[i] for i in sorted(rows)]


def summary(seen: View) -> str:
    """Return one line: evaluations, front, hypervolume and its reference."""
    corner = ", ".join(f"{name} {value:g}" for name, value in seen.reference.items())
    failed = f", {len(seen.failed)} failed" if seen.failed else ""
    kept = "" if not seen.front or seen.front[0].feasible else ", none of them within the limits"
    return (
        f"{seen.evaluations} trials{failed}; {len(seen.front)} on the front{kept}; hypervolume "
        f"{seen.hypervolume:.4f}{share_text(seen.share)} (reference {corner})"
    )


def share_text(share: float) -> str:
    """Return the share of the reference box behind a hypervolume; nothing where there is no box."""
    return f", share {share:.4f} of the reference box" if math.isfinite(share) else ""


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: v if math.isfinite(v) else None for name, v in values.items()}


def as_plain(point: Point) -> dict[str, Any]:
    """Return a point as plain data."""
    return {
        "trial": point.trial,
        "settings": point.settings,
        "objectives": point.objectives,
        "limits": point.limited,
        "measures": _finite(point.measures),
        "spread": _finite(point.spread),
        "runs": point.runs,
        "feasible": point.feasible,
    }


def front_data(seen: View) -> dict[str, Any]:
    """Return the front as plain data, the form of `fedpareto front --json`."""
    return {
        "study": seen.study.name,
        "evaluations": seen.evaluations,
        "reference": seen.reference,
        "hypervolume": seen.hypervolume,
        "share": seen.share if math.isfinite(seen.share) else None,
        "limits": {o.name: o.limit for o in seen.judges if o.limit is not None},
        "proxies": {o.name: o.proxy for o in seen.judges if o.proxy},
        "recommended": seen.recommended.trial if seen.recommended else None,
        "knee": seen.knee.trial if seen.knee else None,
        "why": seen.why,
        "baselines": baselines(seen),
        "privacy": as_data(seen),
        "points": [as_plain(p) | {"audits": audits(seen, p)} for p in seen.front],
    }


def front_csv(seen: View) -> str:
    """Return the front as CSV: a row for each point, with its settings and all measures.

    An objective or a limit with the name of another column is headed objective.NAME, limit.NAME.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    headings, rows = as_rows(seen, seen.front)
    writer.writerow(map(in_csv, headings))
    for row in rows:
        writer.writerow(map(in_csv, row))
    return out.getvalue()


def as_rows(seen: View, points: Sequence[Point]) -> tuple[list[str], list[list[Any]]]:
    """Return points as a table: its headings, and a row for each point."""
    if not points:
        return ["trial", "feasible"], []
    headings = _headings(seen)
    first = points[0]
    measures = [name for name in first.measures if name not in headings.values()]
    rows = []
    for p in points:
        found = _finite(p.measures)
        row: list[Any] = [p.trial, p.feasible, *(p.judged[name] for name in headings)]
        row += [p.settings.get(name) for name in first.settings]
        row += [found.get(name) for name in measures]
        rows.append([*row, p.runs])
    names = ["trial", "feasible", *headings.values(), *first.settings, *measures, "runs"]
    return names, rows


def _headings(seen: View) -> dict[str, str]:
    """Return the heading of each objective and limit: its name, unless another column has that."""
    first = seen.points[0] if seen.points else None
    taken = {"trial", "feasible", "runs"}
    if first is not None:
        taken |= {*first.settings, *first.measures}
    headings: dict[str, str] = {}
    for o in seen.judges:
        name = o.name
        while name in headings.values() or (name in taken and name != o.measure):
            name = f"{o.section.removesuffix('s')}.{name}"
        headings[o.name] = name
    return headings


def in_csv(value: Any) -> Any:
    """Return a value for a cell of CSV: numbers as they are, text that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
