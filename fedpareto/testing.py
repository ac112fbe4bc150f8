"""Contracts, for our own alternatives and for third parties': each check raises AssertionError with what does not hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.history import History
from fedpareto.mechanisms import Mechanism, Upload
from fedpareto.noise import Noise, stream
from fedpareto.optimizers import Optimizer
from fedpareto.problem import Objective, Problem
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
    """Return a function of d floats in [0, 1] as a problem with m objectives, the last with an optional limit."""
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
    """Check that an optimizer is frozen, pure, stays in the cube, and survives awkward histories."""
    assert _frozen(optimizer), "an optimizer must be a frozen dataclass"
    for name, problem in _awkward_problems().items():
        history = History.empty(len(problem.space), len(problem.objectives))
        for _ in range(3):
            _check_proposal(name, optimizer, problem, history, seed)
            history = step(problem, optimizer, history, seed)


def _check_proposal(
    name: str, optimizer: Optimizer, problem: Problem, history: History, seed: int
) -> None:
    before = [a.copy() for a in (history.x, history.y, history.batch)]
    x = optimizer.propose(problem, history, optimizer.batch, seed)
    shape = (optimizer.batch, len(problem.space))
    assert x.shape == shape, f"{name}: points must have shape {shape}, found {x.shape}"
    assert bool(((x >= 0) & (x <= 1)).all()), (
        f"{name}: points must lie in the unit cube, found {x.min()} to {x.max()}"
    )
    again = optimizer.propose(problem, history, optimizer.batch, seed)
    assert np.array_equal(x, again), f"{name}: same arguments must give the same points"
    untouched = all(
        np.array_equal(a, b, equal_nan=True)
        for a, b in zip(before, (history.x, history.y, history.batch), strict=True)
    )
    assert untouched, f"{name}: the history must be left as it was"


def _awkward_problems() -> dict[str, Function]:
    """Return problems that break careless optimizers."""

    def smooth(x: FloatArray) -> FloatArray:
        return np.stack([x[:, 0], 1 - x.mean(axis=1)], axis=1)

    def failing(x: FloatArray) -> FloatArray:
        return np.where(x[:, :1] > 0.5, np.nan, smooth(x))

    bits, kind = Choice("bits", (8, 16)), Choice("kind", ("a", "b", "c"))
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
    """Check that a problem measures its objectives, row by row, whatever the neighbours."""
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
    turned = problem.measure(
        {k: [v[i] for i in order] for k, v in values.items()}, [seeds[i] for i in order]
    )
    alone = problem.measure({k: v[:1] for k, v in values.items()}, seeds[:1])
    for name, column in whole.items():
        assert column.shape == (n,), f"{name}: must have shape ({n},), found {column.shape}"
        assert np.array_equal(column[order], turned[name], equal_nan=True), (
            f"{name}: a row must not depend on its place"
        )
        assert np.array_equal(column[:1], alone[name], equal_nan=True), (
            f"{name}: a row must not depend on its neighbours"
        )


def check_mechanism(
    mechanism: Mechanism, R: int = 3, K: int = 4, P: int = 50, seed: int = 0
) -> None:
    """Check that a mechanism keeps shapes, leaves its input alone, and treats each federation by itself."""
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
