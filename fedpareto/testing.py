"""Checks of what an optimizer, a problem or a mechanism must hold, ours or your own.

Each raises AssertionError with what does not hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import FedparetoError
from fedpareto.history import History
from fedpareto.mechanisms import Mechanism, Upload
from fedpareto.noise import Noise, stream
from fedpareto.optimizers import ChoosesRepeats, Finishes, Optimizer
from fedpareto.problem import Checks, Knows, Objective, Problem, TellsOnTheWay
from fedpareto.settings import named
from fedpareto.space import Choice, Float, FloatArray, Integer, Space, Values, Variable


@dataclass(frozen=True)
class Function:
    """A problem given by a function of the unit cube: x [n,d] → y [n,m]."""

    function: Callable[[FloatArray], FloatArray]
    space: Space
    objectives: tuple[Objective, ...]
    block: int = 1_000_000

    failures = {}  # type: ignore[var-annotated]  # noqa: RUF012

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        y = self.function(self.space.encode(values, len(seeds)))
        return {o.measure: y[:, j] for j, o in enumerate(self.objectives)}


def continuous(
    function: Callable[[FloatArray], FloatArray],
    d: int,
    m: int,
    limit: float | None = None,
    reference: float = 1.1,
) -> Function:
    """Return a function of d floats in [0, 1] as a problem with m objectives.

    The limit, if any, is of the last objective.
    """
    objectives = [Objective(f"f{j + 1}", reference=reference) for j in range(m)]
    objectives[-1] = replace(objectives[-1], limit=limit)
    return Function(
        function, Space(tuple(Float(f"x{j + 1}", 0.0, 1.0) for j in range(d))), tuple(objectives)
    )


def optimize(problem: Problem, optimizer: Optimizer, evaluations: int, seed: int) -> History:
    """Run an optimizer on a cheap problem, without a store."""
    history = History.empty(len(problem.space), len(problem.objectives))
    while len(history) < evaluations:
        history = step(problem, optimizer, history, seed)
    return history


def step(problem: Problem, optimizer: Optimizer, history: History, seed: int) -> History:
    """Propose one batch, measure it, and return the longer history."""
    x = problem.space.snap(optimizer.propose(problem, history, optimizer.batch, seed))
    measured = problem.measure(problem.space.decode(x), [seed] * len(x))
    return history.extend(x, np.stack([measured[o.measure] for o in problem.objectives], axis=1))


def check_optimizer(optimizer: Optimizer, seed: int = 0) -> None:
    """Check that an optimizer is frozen, pure, stays in the cube, and survives awkward histories.

    What else it can do (Finishes, ChoosesRepeats) is checked on the same histories.
    """
    assert _frozen(optimizer), "an optimizer must be a frozen dataclass"
    for name, problem in _awkward_problems().items():
        history = History.empty(len(problem.space), len(problem.objectives))
        for _ in range(3):
            _check_proposal(name, optimizer, problem, history, seed)
            if isinstance(optimizer, Finishes):
                _check_finished(name, optimizer, problem, history, seed)
            before = history
            history = step(problem, optimizer, history, seed)
            if isinstance(optimizer, ChoosesRepeats):
                new = history.batch == before.batches
                x = history.x[new]
                y = history.y[new]
                _check_repeats(name, optimizer, problem, before, x, y)
                _check_repeats(name, optimizer, problem, _with_noise(before), x, y)


def _check_proposal(
    name: str, optimizer: Optimizer, problem: Problem, history: History, seed: int
) -> None:
    with _left_alone(name, history):
        x = optimizer.propose(problem, history, optimizer.batch, seed)
        again = optimizer.propose(problem, history, optimizer.batch, seed)
    shape = (optimizer.batch, len(problem.space))
    assert x.shape == shape, f"{name}: points must have shape {shape}, found {x.shape}"
    assert bool(((x >= 0) & (x <= 1)).all()), (
        f"{name}: points must lie in the unit cube, found {x.min()} to {x.max()}"
    )
    assert np.array_equal(x, again), f"{name}: same arguments must give the same points"


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
    x: FloatArray,
    y: FloatArray,
) -> None:
    n = len(x)
    runs = 1 + np.arange(n) % 2

    def asked(rows: list[int]) -> NDArray[np.bool_]:
        return optimizer.worth_repeating(problem, history, x[rows], y[rows], runs[rows])

    with _left_alone(name, history, x, y, runs):
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


def _with_noise(history: History) -> History:
    """Return a history whose rows are means of three trainings each, with some spread."""
    return replace(
        history,
        runs=np.full(len(history), 3, dtype=np.int64),
        spread=np.full(history.y.shape, 0.1),
    )


@contextlib.contextmanager
def _left_alone(name: str, history: History, *arrays: NDArray[Any]) -> Iterator[None]:
    """Check that a history and other arguments are not changed meanwhile."""
    held = [history.x, history.y, history.batch, history.runs, history.spread, *arrays]
    before = [a.copy() for a in held]
    yield
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, held, strict=True))
    assert same, f"{name}: the history and all arguments must be left as they were"


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
        "nothing to search": continuous(lambda x: np.ones((len(x), 2)), 0, 2),
    }


def check_problem(problem: Problem, n: int = 3, seed: int = 0) -> None:
    """Check that a problem measures its objectives, row by row, whatever the neighbours.

    What else it can do (Checks, Knows, TellsOnTheWay) is checked on the same rows.
    """
    if isinstance(problem, Checks):
        _check_checks(problem)
    rng = np.random.default_rng(seed)
    x = problem.space.snap(rng.random((n, len(problem.space))))
    values = problem.space.decode(x)
    seeds = [seed + i % 2 for i in range(n)]
    whole = problem.measure(values, seeds)
    for objective in problem.objectives:
        assert objective.measure in whole, (
            f"{objective.name}: measure {objective.measure!r} must be among {sorted(whole)}"
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
    if isinstance(problem, Knows):
        _check_known(problem, [o.measure for o in problem.objectives], values, whole)
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
    problem: Knows, objectives: Sequence[str], values: Values, measured: Mapping[str, FloatArray]
) -> None:
    """Check that what is known without a run is what a run measures, for the measures asked for."""
    for names in (None, [*measured], []):
        asked = objectives if names is None else names
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
    """Check that each objective has a curve of the right shape, which ends where its run does."""
    shape = (len(lengths), int(lengths.max()))
    for objective in problem.objectives:
        assert objective.measure in curves, (
            f"measure_along: must tell {objective.measure!r} on the way, found {sorted(curves)}"
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


def check_mechanism(
    mechanism: Mechanism, R: int = 3, K: int = 4, P: int = 50, seed: int = 0
) -> None:
    """Check that a mechanism keeps shapes and its input, and treats each federation by itself."""
    import torch

    assert _frozen(mechanism), "a mechanism must be a frozen dataclass"
    values = {
        name: torch.linspace(0.5, 1.0, R) * scale for name, scale in _numbers(mechanism).items()
    }
    sent = torch.randn(R, K, P, generator=stream(seed, "upload"))
    one = torch.ones(R, K)
    upload = Upload(sent, one * P, one * 32, one * 0)
    out = mechanism.protect(
        dataclasses.replace(upload, values=sent.clone()), values, Noise(seed, 0, range(K))
    )
    assert out.values.shape == sent.shape, (
        f"values must have shape {tuple(sent.shape)}, found {tuple(out.values.shape)}"
    )
    for name in ("count", "bits", "seconds"):
        got = getattr(out, name)
        assert got.shape == (R, K), f"{name} must have shape {(R, K)}, found {tuple(got.shape)}"
        assert bool((got >= 0).all()), f"{name} must not be negative, found {float(got.min())}"
    assert bool(torch.isfinite(out.values).all()), "values must be finite for a finite upload"
    again = mechanism.protect(upload, values, Noise(seed, 0, range(K)))
    assert torch.equal(out.values, again.values), "the same noise must give the same upload"
    assert torch.equal(upload.values, sent), "the upload that came in must be left as it was"
    turned = [*range(1, R), 0]
    other = mechanism.protect(
        Upload(sent[turned], one * P, one * 32, one * 0),
        {k: v[turned] for k, v in values.items()},
        Noise(seed, 0, range(K)),
    )
    assert torch.equal(out.values[turned], other.values), (
        "a federation must not depend on its neighbours or their order"
    )


def _frozen(thing: Any) -> bool:
    """Say whether something is a frozen dataclass."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _numbers(settings: Any) -> dict[str, float]:
    """Return the numeric settings of a dataclass, a variable at the middle of its range."""
    middle = {
        name: v.decode(0.5) if isinstance(v, Variable) else v for name, v in named(settings).items()
    }
    return {
        name: float(v)
        for name, v in middle.items()
        if isinstance(v, int | float) and not isinstance(v, bool)
    }
