"""Evaluation: trials in, results out as they finish. A trial that fails is a result that says so."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fedpareto.errors import FedparetoError
from fedpareto.noise import derive
from fedpareto.problem import Problem
from fedpareto.space import FloatArray, Values
from fedpareto.trials import Result, Trial

Evaluate = Callable[[Problem, Sequence[Trial], int], Iterable[Sequence[Result]]]


def here(problem: Problem, trials: Sequence[Trial], seed: int) -> Iterator[Sequence[Result]]:
    """Measure trials in this process and yield the results block by block.

    Repeat r of every trial has the same seed: the same split, clients, mini-batches and noise (common random numbers).
    """
    for repeat in sorted({r for t in trials for r in t.repeats_left}):
        waiting = [t for t in trials if repeat in t.repeats_left]
        for i in range(0, len(waiting), problem.block):
            yield _measure(problem, waiting[i : i + problem.block], repeat, seed)


def _measure(problem: Problem, trials: Sequence[Trial], repeat: int, seed: int) -> list[Result]:
    """Measure one block; if it fails as a whole, halve it until the culprit stands alone."""
    values = {name: [t.settings[name] for t in trials] for name in problem.space.names}
    try:
        measured, curves = _measured(problem, values, [derive(seed, "repeat", repeat)] * len(trials))
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
        return _measure(problem, trials[:half], repeat, seed) + (_measure(problem, rest, repeat, seed) if rest else [])
    rows = [{name: float(column[i]) for name, column in measured.items()} for i in range(len(trials))]
    on_the_way = [{name: column[i].tolist() for name, column in curves.items()} for i in range(len(trials))]
    return [Result(t.number, repeat, row, _failure(problem, row), way) for t, row, way in zip(trials, rows, on_the_way, strict=True)]


def _measured(problem: Problem, values: Values, seeds: Sequence[int]) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return the measures, name → [n], and where one variable is free along a run, what it showed on the way, name → [n,T]."""
    if getattr(problem, "free", None) is None:
        return problem.measure(values, seeds), {}
    both: tuple[dict[str, FloatArray], dict[str, FloatArray]] = problem.measure_along(values, seeds)  # type: ignore[attr-defined]
    return both


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
