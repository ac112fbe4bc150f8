"""What is promised of points and of a search: statements of true (ε, δ)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.contract import Seen
from fedpareto.federation.columns import Columns, columns_of, contract_of
from fedpareto.privacy import Guarantee, guarantee, selection_guarantee

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation


def promise(
    problem: Federation, settings: Mapping[str, Any], view: str | None = None
) -> Guarantee | None:
    """Return what is promised of one point; None without noise, or where no bound is known."""
    values = {name: [value] for name, value in settings.items()}
    columns = columns_of(problem, values, 1, views=())
    seen = _seen(problem, columns, view or problem.privacy.view)
    if seen is None:
        return None
    terms = seen.terms(int(columns["rounds"][0]))
    numbers = {n: float(v[0]) if isinstance(v, np.ndarray) else v for n, v in terms.items()}
    return guarantee(problem.privacy, **numbers)


def search_promise(
    problem: Federation, tried: Sequence[Mapping[str, Any]], repeats: int
) -> Guarantee | None:
    """Return what a search promises that trains each of these points so many times."""
    values = {name: [s[name] for s in tried] for name in problem.space.names}
    columns = columns_of(problem, values, len(tried), views=())
    seen = _seen(problem, columns, problem.privacy.view)
    if seen is None:
        return None
    terms = seen.terms(columns["rounds"])
    return selection_guarantee(problem.privacy, **terms, trials=len(tried), repeats=repeats)


def _seen(problem: Federation, columns: Columns, view: str) -> Seen | None:
    """Return what an onlooker sees of these points; None unless noise hides every one."""
    seen = contract_of(problem, columns).seen(view)
    if seen is None or not (columns["sigma"] > 0).all():
        return None
    return seen
