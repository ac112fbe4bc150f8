"""Check what a problem must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import FedparetoError
from fedpareto.problem import Checks, JoinsRepeats, Knows, Problem, TellsOnTheWay, judges
from fedpareto.space import FloatArray, Integer, Values


def check_problem(problem: Problem, n: int = 3, seed: int = 0) -> None:
    """Check that a problem measures its objectives, row by row, whatever the neighbours.

    What else it can do (Checks, JoinsRepeats, Knows, LimitsMeasures, TellsOnTheWay) is checked on
    the same rows.
    """
    if isinstance(problem, Checks):
        _check_checks(problem)
    rng = np.random.default_rng(seed)
    x = problem.space.snap(rng.random((n, len(problem.space))))
    values = problem.space.decode(x)
    seeds = [seed + i % 2 for i in range(n)]
    whole = problem.measure(values, seeds)
    asked = judges(problem)
    names = [judge.name for judge in asked]
    assert len(set(names)) == len(names), (
        f"limits: must have names that differ from one another and from objectives, found {names}"
    )
    for judge in asked:
        assert judge.measure in whole, (
            f"{judge.name}: measure {judge.measure!r} must be among {sorted(whole)}"
        )
    order = [*range(1, n), 0]
    turned = problem.measure(_rows(values, order), [seeds[i] for i in order])
    alone = problem.measure(_rows(values, [0]), seeds[:1])
    for name, column in whole.items():
        assert column.shape == (n,), f"{name}: must have shape ({n},), found {column.shape}"
        assert np.array_equal(column[order], turned[name], equal_nan=True), (
            f"{name}: a row must not depend on its place"
        )
        assert np.array_equal(column[:1], alone[name], equal_nan=True), (
            f"{name}: a row must not depend on its neighbours"
        )
    if isinstance(problem, JoinsRepeats):
        together = problem.repeats_at_once
        assert together >= 1, f"repeats_at_once: must be at least 1, found {together}"
    if isinstance(problem, Knows):
        _check_known(problem, [o.measure for o in asked], values, whole)
    _check_on_the_way(problem, values, seeds, whole)


def _rows(values: Values, rows: Sequence[int]) -> dict[str, list[Any]]:
    """Return these rows of settings, name → [n]."""
    return {name: [column[i] for i in rows] for name, column in values.items()}


def _check_checks(problem: Checks) -> None:
    """Check that check passes, returns nothing, and raises only errors that say what to do."""
    check: Callable[[], object] = problem.check
    try:
        answer = check()
    except FedparetoError:
        raise
    except Exception as error:
        raise AssertionError(
            f"check: must raise a FedparetoError that says what is wrong, found {error!r}"
        ) from error
    assert answer is None, f"check: must raise what is wrong and return nothing, found {answer!r}"


def _check_known(
    problem: Knows, judged: Sequence[str], values: Values, measured: Mapping[str, FloatArray]
) -> None:
    """Check that what is known without a run is what a run measures, for the measures asked for."""
    for names in (None, [*measured], []):
        asked = judged if names is None else names
        known = problem.known(values) if names is None else problem.known(values, names)
        for name, column in known.items():
            assert name in asked, f"known: must tell only what is asked, {asked}, found {name!r}"
            _check_same(f"known: {name}", column, measured[name])


def _check_on_the_way(
    problem: Problem, values: Values, seeds: Sequence[int], measured: Mapping[str, FloatArray]
) -> None:
    """Check that a run tells on the way what shorter runs measure."""
    if not isinstance(problem, TellsOnTheWay) or problem.free is None:
        return
    free = problem.free
    assert free in problem.space.names, (
        f"free: must be one of the variables {list(problem.space.names)}, found {free!r}"
    )
    variable = problem.space.variables[problem.space.names.index(free)]
    assert isinstance(variable, Integer), f"free: must be a whole number, found {variable}"
    ends, curves = problem.measure_along(values, seeds)
    assert set(ends) == set(measured), (
        f"measure_along: must measure what measure does, {sorted(measured)}, found {sorted(ends)}"
    )
    for name, column in ends.items():
        _check_same(f"measure_along: {name}", column, measured[name])
    lengths = np.asarray(values[free], dtype=np.int64)
    _check_curves(problem, curves, lengths)
    rows = np.arange(len(lengths))
    for name, curve in curves.items():
        last = curve[rows, lengths - 1]
        _check_same(f"measure_along: {name} at a run's end", last, measured[name])
    for part in (0.0, 0.5):
        shorter = np.floor(variable.low + part * (lengths - variable.low)).astype(np.int64)
        there = problem.measure({**values, free: shorter.tolist()}, seeds)
        for name, curve in curves.items():
            shown = curve[rows, shorter - 1]
            judged = ~np.isnan(shown)  # a run need not be judged after each step
            _check_same(f"measure_along: {name} on the way", shown[judged], there[name][judged])


def _check_curves(
    problem: Problem, curves: Mapping[str, FloatArray], lengths: NDArray[np.int64]
) -> None:
    """Check that what is judged has a curve of the right shape, which ends where its run does."""
    shape = (len(lengths), int(lengths.max()))
    for judge in judges(problem):
        assert judge.measure in curves, (
            f"measure_along: must tell {judge.measure!r} on the way, found {sorted(curves)}"
        )
    beyond = np.arange(1, shape[1] + 1) > lengths[:, None]
    for name, curve in curves.items():
        assert curve.shape == shape, (
            f"measure_along: {name} on the way must have shape {shape}, found {curve.shape}"
        )
        assert bool(np.isnan(curve[beyond]).all()), (
            f"measure_along: {name} on the way must be nan beyond a run's own end"
        )


def _check_same(where: str, found: FloatArray, measured: FloatArray) -> None:
    """Check that a column is what was measured, where that succeeded, up to rounding."""
    assert found.shape == measured.shape, (
        f"{where}: must have shape {measured.shape}, found {found.shape}"
    )
    valid = ~np.isnan(measured)
    assert np.allclose(found[valid], measured[valid], rtol=1e-9, atol=0.0), (
        f"{where}: must be what measure gives, {measured}, found {found}"
    )
