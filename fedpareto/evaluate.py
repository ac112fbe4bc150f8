"""Evaluation: trials in, results out as they finish. A trial that fails is a result that says so."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import FedparetoError
from fedpareto.noise import derive
from fedpareto.problem import STOPPED, Problem
from fedpareto.space import FloatArray, Values
from fedpareto.trials import Result, Trial

Evaluate = Callable[..., Iterable[Sequence[Result]]]  # of a problem, trials, the study's seed and, where runs may be stopped, go_on
GoOn = Callable[[Sequence[Trial], int, Mapping[str, FloatArray]], NDArray[np.bool_]]  # trials, a round t, measures so far [n,t] → [n]

HOPELESS = "no later round was expected to reach the front"


def here(problem: Problem, trials: Sequence[Trial], seed: int, go_on: GoOn | None = None) -> Iterator[Sequence[Result]]:
    """Measure trials in this process and yield the results block by block.

    Repeat r of every trial has the same seed: the same split, clients, mini-batches and noise (common random numbers). With go_on,
    the first training of a trial may be stopped on its way.
    """
    for repeat in sorted({r for t in trials for r in t.repeats_left}):
        waiting = [t for t in trials if repeat in t.repeats_left]
        for i in range(0, len(waiting), problem.block):
            yield _measure(problem, waiting[i : i + problem.block], repeat, seed, None if repeat else go_on)


def _measure(problem: Problem, trials: Sequence[Trial], repeat: int, seed: int, go_on: GoOn | None) -> list[Result]:
    """Measure one block; if it fails as a whole, halve it until the culprit stands alone."""
    values = {name: [t.settings[name] for t in trials] for name in problem.space.names}
    try:
        measured, curves = _measured(problem, trials, values, [derive(seed, "repeat", repeat)] * len(trials), go_on)
    except FedparetoError:
        raise
    except Exception as error:
        short_of_memory = _out_of_memory(error)
        if len(trials) == 1 and (problem.block == 1 or not short_of_memory):
            return [Result(trials[0].number, repeat, {}, _reason(error))]
        half = max(1, len(trials) // 2)
        if short_of_memory:
            problem = _with_block(problem, max(1, problem.block // 2))
            logging.getLogger("fedpareto").warning("out of memory: going on with blocks of %d", problem.block)
        rest = trials[half:]
        return _measure(problem, trials[:half], repeat, seed, go_on) + (_measure(problem, rest, repeat, seed, go_on) if rest else [])
    stopped = measured.pop(STOPPED, np.full(len(trials), math.nan)).tolist()
    rows = [{name: float(column[i]) for name, column in measured.items()} for i in range(len(trials))]
    free: Any = getattr(problem, "free", None)  # a trial's curves end where it does, however long its neighbours'
    on_the_way = [{name: column[i].tolist()[: t.settings.get(free)] for name, column in curves.items()} for i, t in enumerate(trials)]
    return [Result(t.number, repeat, row, _failure(problem, row), way) if math.isnan(end) else
            Result(t.number, repeat, {STOPPED: end}, f"stopped after round {end:.0f}: {HOPELESS}", way, stopped=True)
            for t, row, way, end in zip(trials, rows, on_the_way, stopped, strict=True)]


def _measured(problem: Any, trials: Sequence[Trial], values: Values, seeds: Sequence[int],
              go_on: GoOn | None) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return the measures, name → [n], and where one variable is free along a run, what it showed on the way, name → [n,T]."""
    if getattr(problem, "free", None) is None:
        return problem.measure(values, seeds), {}
    if go_on is None:
        return problem.measure_along(values, seeds)  # type: ignore[no-any-return]
    asked = go_on  # not None
    return problem.measure_along(  # type: ignore[no-any-return]
        values, seeds, lambda rows, t, shown: asked([trials[int(i)] for i in rows], t, shown))


def _with_block(problem: Problem, block: int) -> Problem:
    smaller: Any = dataclasses.replace(problem, block=block)  # type: ignore[type-var]
    made: Problem = smaller
    return made


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower() or "can't allocate" in str(error)


def _reason(error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
    if _out_of_memory(error):
        return f"out of memory, even trained alone: {first}"
    return f"{type(error).__name__}: {first}"


def _failure(problem: Problem, row: dict[str, float]) -> str | None:
    """Return why a row counts as failed, if it does."""
    for name, sentence in problem.failures.items():
        if math.isfinite(row.get(name, math.nan)):
            return sentence.format(row[name])
    for objective in problem.objectives:
        value = row.get(objective.measure, math.nan)
        if not math.isfinite(value):
            return f"{objective.name} must be a finite number, found {value}"
    return None
