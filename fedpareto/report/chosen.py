"""The choice of an evidence, in numbers and settings, and what is promised of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedpareto.problem import is_private
from fedpareto.report.against import against
from fedpareto.report.choose import Point
from fedpareto.report.paper import Html, bullets, paragraph, section, table
from fedpareto.report.points import View
from fedpareto.report.privacy import (
    epsilon_heading,
    epsilon_text,
    guarantees,
    headline,
    of_one,
    what_holds,
)
from fedpareto.report.scale import among_published
from fedpareto.report.text import column, shown, spread_of
from fedpareto.words import short


def choice(seen: View, point: Point | None, why: str, limits: Mapping[str, float]) -> Html:
    """Return which point was chosen within these limits, why, what it came to, its settings."""
    if point is None:
        return section("The choice", paragraph("None was made."), paragraph(why))
    settings = table(
        ("setting", "value"),
        [(name, repr(value)) for name, value in point.settings.items()],
        kind="words",
    )
    of = "spread over repeats"
    if point.runs < seen.study.repeats:
        of = f"spread over {point.runs} trainings"
    return section(
        "The choice",
        paragraph(f"Trial {point.trial}. {why}"),
        paragraph(" ".join(against(seen))) if against(seen) else "",
        table(("objective", "value", of), _values(seen, point, limits)),
        settings,
    )


def _values(seen: View, point: Point, limits: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return what a point is judged by and its ε, what holds first: name, value, spread."""
    rows = []
    if is_private(seen.study.problem) and (view := headline(seen)) is not None:
        whole = epsilon_text(what_holds(seen, point))
        rows.append((f"true ε ({view}) of the whole search: what holds", whole, "none"))
    rows += [
        (heading, epsilon_text(point.measures.get("epsilon")), _spread(point, "epsilon"))
        for heading in epsilon_heading(seen)
    ]
    for o in seen.judges:
        one = of_one(seen) if o.measure.startswith("epsilon") else ""
        limit = _tighter(o.limit, limits.get(o.name))
        asked = o if limit is None else replace(o, limit=limit)
        rows.append(
            (column(asked) + one, shown(o, point.judged[o.name]), _spread(point, o.measure))
        )
    return rows


def _tighter(own: float | None, asked: float | None) -> float | None:
    """Return the lesser of the study's limit and the one that was asked for."""
    return min((v for v in (own, asked) if v is not None), default=None)


def _spread(point: Point, measure: str) -> str:
    apart = spread_of(point, measure)
    return "none" if apart is None else short(apart)


def guarantee(seen: View, point: Point | None) -> Html:
    """Return what is promised of the choice and of the search."""
    lines = guarantees(seen, point) or ["None is stated."]
    holds = what_holds(seen, point)
    placed = "" if holds is None else paragraph(among_published(holds))
    return section("The guarantee, and what it rests on", bullets(lines), placed)
