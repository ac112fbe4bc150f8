"""Cheap problems, and an optimizer run on them without a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.history import History
from fedpareto.optimizers import Optimizer
from fedpareto.problem import Limit, Objective, Problem, judges, limits_of
from fedpareto.settings import named, searched
from fedpareto.space import Choice, Float, FloatArray, Space, Values, Variable


@dataclass(frozen=True)
class Function:
    """A problem given by a function of the unit cube: x [n,d] → y [n,m+c]."""

    function: Callable[[FloatArray], FloatArray]
    space: Space
    objectives: tuple[Objective, ...]
    block: int = 1_000_000
    limits: tuple[Limit, ...] = ()

    failures = {}  # type: ignore[var-annotated]  # noqa: RUF012

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        y = self.function(self.space.encode(values, len(seeds)))
        return {o.measure: y[:, j] for j, o in enumerate(judges(self))}


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
    history = nothing(problem)
    while len(history) < evaluations:
        history = step(problem, optimizer, history, seed)
    return history


def nothing(problem: Problem) -> History:
    """Return a history of a problem of which nothing was measured."""
    return History.empty(len(problem.space), len(problem.objectives), len(limits_of(problem)))


def step(problem: Problem, optimizer: Optimizer, history: History, seed: int) -> History:
    """Propose one batch, measure it, and return the longer history."""
    proposed = optimizer.propose(problem, history, optimizer.batch, seed)
    return measured(problem, history, proposed, seed)


def measured(problem: Problem, history: History, proposed: FloatArray, seed: int) -> History:
    """Measure the points of a proposal, and return the longer history."""
    x = problem.space.snap(proposed)
    found = problem.measure(problem.space.decode(x), [seed] * len(x))
    judged = np.stack([found[o.measure] for o in judges(problem)], axis=1)
    y, limited = np.split(judged, [len(problem.objectives)], axis=1)
    return history.extend(x, y, limited=limited)


def frozen(thing: Any) -> bool:
    """Say whether something is a frozen dataclass."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def numbers_of(settings: Any) -> dict[str, float]:
    """Return the numeric settings of a dataclass, a variable at the middle of its range."""
    held = {n: v.decode(0.5) if isinstance(v, Variable) else v for n, v in named(settings).items()}
    numeric = {n: v for n, v in held.items() if isinstance(v, int | float)}
    return {n: float(v) for n, v in numeric.items() if not isinstance(v, bool)}


def texts_of(settings: Any) -> list[Choice]:
    """Return the choices among texts; a point holds the place of its own among them."""
    choices = [v for v in searched(settings) if isinstance(v, Choice)]
    return [v for v in choices if isinstance(v.choices[0], str)]
