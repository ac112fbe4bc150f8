"""Points trained and measured: at the end of each run, and after every round."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.errors import SettingError
from fedpareto.federation import blocks
from fedpareto.federation.columns import epsilons, given_of
from fedpareto.federation.known import known_costs
from fedpareto.federation.measure import LOST
from fedpareto.mechanisms import Unprotected
from fedpareto.privacy import VIEWS
from fedpareto.space import FloatArray, Values

if TYPE_CHECKING:
    from fedpareto.federation.observer import Observer
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.state import State
    from fedpareto.federation.trace import Trace

Measured = dict[str, FloatArray]  # name → [n], or [n,T]


def known(problem: Federation, values: Values, names: Collection[str]) -> Measured:
    """Return those of the named measures that follow from the settings alone, name → [n]."""
    wanted = {name: m for name, m in problem.measures.items() if name in names}
    n = len(next(iter(values.values()), ()))
    held = problem.columns(values, n, views=_views(problem, names))
    figures: Measured = {}
    if any(m.figures for m in wanted.values()):
        given = given_of(problem, values, n)
        figures = known_costs(blocks.setup_of(problem, 0), held | given)
    return {
        name: m.known_from(figures, held) for name, m in wanted.items() if m.follows(held, figures)
    }


def measured(
    problem: Federation, values: Values, seeds: Sequence[int], on_the_way: Sequence[str] = ()
) -> tuple[Measured, Measured]:
    """Train points; return every measure, name → [n], and some after each round, name → [n,T]."""
    n = len(seeds)
    held, curves = _held(problem, values, seeds, on_the_way)
    names = measurable(problem, held, on_the_way)
    check_shown(problem, {f"{name} after each round": name for name in {*on_the_way} - {*names}})
    out = {name: np.full(n, np.nan) for name in [*names, "diverged_round"]}
    longest = int(held["rounds"].max())
    way = {name: np.full((n, longest), np.nan) for name in on_the_way}
    given = given_of(problem, values, n)
    own = blocks.row_seeds(problem, values, seeds)
    for rows, trace in blocks.traces(problem, values, given, own, along=bool(on_the_way)):
        mine = {name: column[rows] for name, column in held.items()}
        for name, column in _ends(problem, trace, mine, names).items():
            out[name][rows] = column
        on_way = {name: curve[rows] for name, curve in curves.items()}
        for name, column in _way(problem, trace, mine, on_way, on_the_way).items():
            way[name][rows, : trace.rounds] = column
    return out, way


def trained_point(
    problem: Federation,
    values: Values,
    seed: int,
    observer: Observer | None = None,
    more: int = 0,
) -> tuple[State, dict[str, float]]:
    """Train one point, name → [1]; return where it ended, and what `measured` says of it.

    seed is its own (`blocks.row_seeds`). more is how many clients an observer may force into a
    round beyond those drawn.
    """
    held, _ = _held(problem, values, [seed])
    grid = np.zeros((1, 1), dtype=np.int64)
    given = given_of(problem, values, 1)
    trace, state = blocks.trained(problem, values, given, grid, [seed], observer, more=more)
    found = _ends(problem, trace, held, measurable(problem, held))
    return state, {name: float(column[0]) for name, column in found.items()}


def measurable(problem: Federation, held: Measured, asked: Collection[str] = ()) -> list[str]:
    """Return the measures that these columns, name → [n], allow; of private data, those shown.

    These are measures of the models, which noise protects, and what follows from settings alone.
    Some are there only where they are asked for, here or by an objective or a limit.
    """
    wanted = {*asked, *problem.asked}
    found = {
        name: m
        for name, m in problem.measures.items()
        if all(need in held for need in m.needs) and (name in wanted or not m.on_request)
    }
    if not problem.private:
        return list(found)
    costs = known_costs(blocks.setup_of(problem, 0), held)
    return [n for n, m in found.items() if m.source == "models" or m.follows(held, costs)]


def check_shown(problem: Federation, left_out: Mapping[str, str]) -> None:
    """Refuse measures, where asked → name, that private data must not show."""
    for where, name in left_out.items() if problem.private else ():
        raise SettingError(
            f"{where}: must be of the models, or follow from the settings alone, with private_data "
            f"= true, found {name}: {problem.measures[name].reason}. Choose another, such as "
            "test_error."
        )


def _held(
    problem: Federation, values: Values, seeds: Sequence[int], on_the_way: Sequence[str] = ()
) -> tuple[Measured, Measured]:
    """Return the columns of points, name → [n], and those that change with the rounds, [n,T].

    These are error or loss without protection, where what protection costs of them is asked for.
    """
    held = problem.columns(values, len(seeds))
    lost = lost_by_protection(problem)
    if not lost:
        return held, {}
    twin = dataclasses.replace(problem, mechanism=Unprotected(), objectives=(), limits=())
    ends, way = measured(twin, values, seeds, tuple(lost) if on_the_way else ())
    curves = {without: way[name] for name, without in lost.items() if on_the_way}
    return held | {without: ends[name] for name, without in lost.items()}, curves


def lost_by_protection(problem: Federation) -> dict[str, str]:
    """Return the measures for which a federation is trained without protection too, see LOST."""
    needed = {need for name in problem.asked for need in problem.measures[name].needs}
    return {name: without for name, without in LOST.items() if without in needed}


def _ends(problem: Federation, trace: Trace, held: Measured, names: Sequence[str]) -> Measured:
    """Return measures at each run's own end, name → [k]; nan of those that diverged."""
    lost = trace.diverged <= held["rounds"]
    measures = problem.measures
    out = {name: np.where(lost, np.nan, measures[name].compute(trace, held)) for name in names}
    return out | {"diverged_round": np.where(lost, trace.diverged, np.nan)}


def _way(
    problem: Federation, trace: Trace, held: Measured, curves: Measured, names: Sequence[str]
) -> Measured:
    """Return measures after each round, name → [k,T]; nan beyond a run's end or divergence.

    curves holds the columns that change with the rounds, name → [k,T].
    """
    measures = problem.measures
    views = _views(problem, names)
    way = {name: np.full((len(trace.diverged), trace.rounds), np.nan) for name in names}
    for t in range(trace.rounds if names else 0):
        then = held | {"rounds": np.full(len(trace.diverged), t + 1.0)}
        then |= {name: curve[:, t] for name, curve in curves.items()}
        then |= epsilons(problem, then, views)
        beyond = (trace.diverged <= t + 1) | (t >= held["rounds"])
        for name in names:
            found = measures[name].compute(trace, then)
            way[name][:, t] = np.where(beyond, np.nan, found)
    return way


def _views(problem: Federation, names: Collection[str]) -> tuple[str, ...]:
    """Return the views whose ε these measures ask for."""
    of_headline = {"epsilon", "epsilon_record", "epsilon_client"}
    headline = problem.privacy.view if of_headline & {*names} else None
    return tuple(v for v in VIEWS if f"epsilon_{v}" in names or v == headline)
