"""What is promised and what is not, in sentences: the true guarantee of a point, and the cost of the search itself."""

from __future__ import annotations

import math
from typing import Any

from fedpareto.privacy import VIEWS, Guarantee, rounded_up
from fedpareto.report.points import Point, View

SEEN_BY = {
    "server": "a server that sees each upload",
    "secagg": "a server that sees sums and knows who took part",
    "release": "anyone who sees the models, participation being secret",
}


def guarantee_of(seen: View, point: Point, view: str | None = None) -> Guarantee | None:
    """Return what is promised of a point; None where nothing is."""
    state = getattr(seen.study.problem, "guarantee", None)
    promised: Guarantee | None = state(point.settings, view) if state else None
    return promised


def headline(seen: View) -> str | None:
    """Return whose view the true ε is for, where the problem knows one."""
    terms = getattr(seen.study.problem, "privacy", None)
    return terms.view if terms else None


def epsilon_heading(seen: View) -> list[str]:
    """Return the heading of the true ε beside the objectives; none where it is an objective, or not known."""
    asked = any(o.measure == "epsilon" for o in seen.objectives)
    return [f"true ε ({headline(seen)})"] if headline(seen) and not asked else []


def epsilon_text(value: float | None) -> str:
    """Return an ε as people read it: three digits, rounded up; none where no noise is added."""
    return rounded_up(value, 3) if value is not None and math.isfinite(value) else "none"


def statements(seen: View) -> list[str]:
    """Return what is promised of the recommended point, of the search, and what to beware of."""
    if headline(seen) is None or seen.recommended is None:
        return []
    return [*promises(seen, seen.recommended), *search_cost(seen)]


def promises(seen: View, point: Point) -> list[str]:
    """Return what is promised of a point, in sentences."""
    if headline(seen) is None:
        return []
    promised = guarantee_of(seen, point)
    if promised is None:
        return [
            "No true ε is promised: no noise is added, or no bound is known for these weights. A proxy is not a guarantee."
        ]
    others = [
        f"{epsilon_text(point.measures.get(f'epsilon_{view}'))} for {SEEN_BY[view]}"
        for view in VIEWS
        if view != headline(seen)
    ]
    return [promised.statement(), *promised.notes, f"The same point has ε {' and '.join(others)}."]


def search_cost(seen: View) -> list[str]:
    """Say what choosing among many trained candidates costs, or that it is not counted."""
    problem: Any = seen.study.problem
    if not problem.privacy.private_data:
        return [
            "The search itself is not counted: it is taken to train on public or made-up data. If it trains on private data, say so "
            "with private_data = true in [privacy]."
        ]
    tried = [p.settings for p in seen.points] + [t.settings for t in seen.failed]
    cost: Guarantee | None = problem.search_guarantee(tried, seen.study.repeats)
    if cost is None:
        return [
            "The search trained on private data with no known bound: what it shows is protected by nothing."
        ]
    return [
        f"The search trained on private data. All of it together: {cost.statement()}",
        *cost.notes,
    ]


def as_data(seen: View) -> dict[str, Any]:
    """Return the same as plain data, for programs."""
    view, point = headline(seen), seen.recommended
    if view is None:
        return {}
    promised = None if point is None else guarantee_of(seen, point)
    return {
        "view": view,
        "statement": promised.statement() if promised else None,
        "delta": promised.delta if promised else None,
        "notes": statements(seen),
    }
