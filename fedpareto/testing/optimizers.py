"""Check what an optimizer must hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.history import History
from fedpareto.optimizers import ChoosesRepeats, Finishes, Optimizer, StartsAround
from fedpareto.problem import Limit, Objective, Problem
from fedpareto.space import Choice, Float, FloatArray, Integer, Space
from fedpareto.testing.functions import Function, continuous, frozen, measured, nothing


def check_optimizer(optimizer: Optimizer, seed: int = 0) -> None:
    """Check that an optimizer is frozen, pure, stays in the cube, and survives awkward histories.

    What else it can do (Finishes, ChoosesRepeats, StartsAround) is checked on the same histories.
    """
    assert frozen(optimizer), "an optimizer must be a frozen dataclass"
    for name, problem in _awkward_problems().items():
        history = nothing(problem)
        for _ in range(3):
            proposed = _check_proposal(name, optimizer, problem, history, seed)
            _check_under_way(name, optimizer, problem, history, proposed, seed)
            if isinstance(optimizer, Finishes):
                _check_finished(name, optimizer, problem, history, seed)
            if isinstance(optimizer, StartsAround):
                _check_first(name, optimizer, problem, seed)
            before = history
            history = measured(problem, history, proposed, seed)
            if isinstance(optimizer, ChoosesRepeats):
                tried = _last_batch(history)
                _check_repeats(name, optimizer, problem, before, tried)
                _check_repeats(name, optimizer, problem, _with_noise(before), tried)


def _check_proposal(
    name: str, optimizer: Optimizer, problem: Problem, history: History, seed: int
) -> FloatArray:
    """Check what is proposed, and return it."""
    with _left_alone(name, history):
        x = optimizer.propose(problem, history, optimizer.batch, seed)
        again = optimizer.propose(problem, history, optimizer.batch, seed)
    shape = (optimizer.batch, len(problem.space))
    assert x.shape == shape, f"{name}: points must have shape {shape}, found {x.shape}"
    assert bool(((x >= 0) & (x <= 1)).all()), (
        f"{name}: points must lie in the unit cube, found {x.min()} to {x.max()}"
    )
    assert np.array_equal(x, again), f"{name}: same arguments must give the same points"
    return x


def _check_first(name: str, optimizer: StartsAround, problem: Problem, seed: int) -> None:
    x = optimizer.first(problem.space, 6, seed, 3)
    again = optimizer.first(problem.space, 6, seed, 3)
    shape = (6, len(problem.space))
    assert x.shape == shape, f"{name}: first must give points of shape {shape}, found {x.shape}"
    assert bool(((x >= 0) & (x <= 1)).all()), (
        f"{name}: first must give points in the unit cube, found {x.min()} to {x.max()}"
    )
    assert np.array_equal(x, again), f"{name}: first must give the same points for the same seed"


def _check_under_way(
    name: str,
    optimizer: Optimizer,
    problem: Problem,
    history: History,
    proposed: FloatArray,
    seed: int,
) -> None:
    """Check a proposal while a batch is under way, of which only the points are known."""
    points = problem.space.snap(proposed)
    _check_proposal(name, optimizer, problem, replace(history, pending=points), seed + 1)


def _check_finished(
    name: str, optimizer: Finishes, problem: Problem, history: History, seed: int
) -> None:
    with _left_alone(name, history):
        answer = optimizer.finished(problem, history, seed)
        again = optimizer.finished(problem, history, seed)
    assert isinstance(answer, bool | np.bool_), (
        f"{name}: finished must answer true or false, found {answer!r}"
    )
    assert answer == again, f"{name}: finished must give the same answer to the same question"


def _check_repeats(
    name: str,
    optimizer: ChoosesRepeats,
    problem: Problem,
    history: History,
    tried: History,
) -> None:
    n = len(tried)

    def asked(rows: list[int]) -> NDArray[np.bool_]:
        return optimizer.worth_repeating(problem, history, _rows(tried, rows))

    with _left_alone(name, history, *_arrays(tried)):
        answer = np.asarray(asked([*range(n)]))
        again = asked([*range(n)])
    assert answer.dtype == np.bool_, (
        f"{name}: worth_repeating must answer true or false, found {answer.dtype}"
    )
    assert answer.shape == (n,), (
        f"{name}: worth_repeating must answer for each of {n} rows, found shape {answer.shape}"
    )
    assert np.array_equal(answer, again), (
        f"{name}: worth_repeating must give the same answer to the same question"
    )
    for i in range(n):
        assert asked([i])[0] == answer[i], (
            f"{name}: worth_repeating must judge each row by itself, "
            f"found another answer for row {i} asked alone"
        )


def _last_batch(history: History) -> History:
    """Return the rows of a history's last batch, as means of one and two trainings."""
    new = np.flatnonzero(history.batch == history.batches - 1).tolist()
    return replace(_rows(history, new), runs=1 + np.arange(len(new)) % 2)


def _rows(history: History, rows: list[int]) -> History:
    """Return some rows of a history that has nothing on the way."""
    return History(
        history.x[rows],
        history.y[rows],
        history.batch[rows],
        runs=history.runs[rows],
        spread=history.spread[rows],
        limited=history.limited[rows],
    )


def _with_noise(history: History) -> History:
    """Return a history whose rows are means of three trainings each, with some spread."""
    return replace(
        history,
        runs=np.full(len(history), 3, dtype=np.int64),
        spread=np.full(history.judged.shape, 0.1),
    )


@contextlib.contextmanager
def _left_alone(name: str, history: History, *arrays: NDArray[Any]) -> Iterator[None]:
    """Check that a history and other arguments are not changed meanwhile."""
    held = [*_arrays(history), *arrays]
    before = [a.copy() for a in held]
    yield
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, held, strict=True))
    assert same, f"{name}: the history and all arguments must be left as they were"


def _arrays(history: History) -> list[NDArray[Any]]:
    """Return what a history holds of its rows."""
    held = (history.x, history.y, history.limited, history.batch, history.runs, history.spread)
    return [*held]


def _awkward_problems() -> dict[str, Function]:
    """Return problems that break careless optimizers."""

    def smooth(x: FloatArray) -> FloatArray:
        return np.stack([x[:, 0], 1 - x.mean(axis=1)], axis=1)

    def failing(x: FloatArray) -> FloatArray:
        return np.where(x[:, :1] > 0.5, np.nan, smooth(x))

    bits = Choice("bits", (8, 16))
    kind = Choice("kind", ("a", "b", "c"))
    mixed = Space((Float("rate", 1e-3, 1.0, log=True), Integer("width", 1, 64), bits, kind))
    two = (Objective("f1", reference=1.1), Objective("f2", reference=1.1))
    return {
        "mixed variables": Function(smooth, mixed, two),
        "one variable": continuous(smooth, 1, 2),
        "one choice of two": Function(smooth, Space((bits,)), two),
        "one objective": continuous(lambda x: x[:, :1], 2, 1),
        "constant objectives": continuous(lambda x: np.ones((len(x), 2)), 2, 2),
        "some rows failed": continuous(failing, 2, 2),
        "all rows failed": continuous(lambda x: np.full((len(x), 2), np.nan), 2, 2),
        "all rows infeasible": continuous(smooth, 2, 2, limit=-1.0),
        "a limit beside the objectives": replace(
            continuous(lambda x: np.hstack([smooth(x), x[:, :1]]), 2, 2),
            limits=(Limit("f3", limit=0.5),),
        ),
        "nothing to search": continuous(lambda x: np.ones((len(x), 2)), 0, 2),
    }
