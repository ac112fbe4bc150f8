"""Evaluation: a block of trials in, results out. A trial that fails is a result too."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Sequence

from fedpareto.errors import DeviceLost, FedparetoError, guarded, out_of_memory, told
from fedpareto.noise import derive, widened
from fedpareto.problem import (
    JoinsRepeats,
    Problem,
    SortsPoints,
    TellsOnTheWay,
    UsesDevice,
    free_variable,
    is_private,
    judges,
    part,
)
from fedpareto.space import FloatArray, Values
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import HERE, Ran, Result, Trial, printable

LONGEST = 1000  # letters of an error that are kept
Job = tuple[Trial, int]  # a trial and which repeat of it


def results_of(problem: Problem, jobs: Sequence[Job], seed: int, where: str = HERE) -> list[Result]:
    """Measure one block, and say of each result where, on what and in which time.

    Repeat r of every trial has the same seed: the same split, clients, mini-batches and noise
    (common random numbers). A problem on private data makes of it one of each training's own.
    """
    began = time.perf_counter()
    results = _results(problem, jobs, seed)
    took = (time.perf_counter() - began) / len(jobs)
    ran = Ran(where, device_kind(problem), took)
    return [dataclasses.replace(result, ran=ran) for result in results]


def device_kind(problem: Problem) -> str:
    """Return what a problem is measured on here: the last digits of a row may depend on it."""
    import torch

    if isinstance(problem, UsesDevice) and problem.device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU {torch.backends.cpu.get_cpu_capability()}"


def training_seed(study: Study, store: Store | None) -> int:
    """Return the seed that a study's trainings come from.

    On private data it comes of the secret in the database too, so that nobody without the database
    can take the noise off. Whoever has no database has the study's own seed alone.
    """
    if store is None or store.secret is None or not is_private(study.problem):
        return study.seed
    return widened(study.seed, "secret", store.secret)


def blocks_of(problem: Problem, trials: Sequence[Trial]) -> Iterator[list[Job]]:
    """Yield what is measured in one call: a block of trials, as many repeats as fit together."""
    if isinstance(problem, SortsPoints):
        trials = sorted(trials, key=lambda trial: problem.alike(trial.settings))
    repeats = sorted({r for t in trials for r in t.repeats_left})
    together = problem.repeats_at_once if isinstance(problem, JoinsRepeats) else 1
    for first in range(0, len(repeats), together):
        some = repeats[first : first + together]
        waiting = [t for t in trials if set(some) & set(t.repeats_left)]
        size = problem.block or max(1, len(waiting))
        for i in range(0, len(waiting), size):
            block = waiting[i : i + size]
            yield [(trial, r) for r in some for trial in block if r in trial.repeats_left]


def _results(problem: Problem, jobs: Sequence[Job], seed: int) -> list[Result]:
    """Measure one block; if it fails as a whole, halve it until the culprit stands alone."""
    values = {name: [t.settings[name] for t, _ in jobs] for name in problem.space.names}
    seeds = [derive(seed, "repeat", repeat) for _, repeat in jobs]
    try:
        with guarded(), part(0, len(jobs)):  # what is told are trainings
            measured, curves = _measured(problem, values, seeds)
    except FedparetoError:
        raise
    except Exception as error:
        _check_device(problem, jobs, error)
        short_of_memory = out_of_memory(error)
        if len(jobs) == 1 and (problem.block == 1 or not short_of_memory):
            trial, repeat = jobs[0]
            return [Result(trial.number, repeat, {}, reason_of(error, is_private(problem)))]
        if short_of_memory:
            problem = _with_block(problem, max(1, problem.block // 2))
            log = logging.getLogger("fedpareto")
            log.warning("out of memory: going on with blocks of %d", problem.block)
        half = max(1, len(jobs) // 2)
        parts = [jobs[:half], jobs[half:]]
        return [r for part in parts if part for r in _results(problem, part, seed)]
    free = free_variable(problem)
    out = []
    for i, (trial, repeat) in enumerate(jobs):
        row = {name: float(column[i]) for name, column in measured.items()}
        way = _way(curves, i, trial, free)
        out.append(Result(trial.number, repeat, row, _failure(problem, row), way))
    return out


def _check_device(problem: Problem, jobs: Sequence[Job], error: Exception) -> None:
    """Raise if training ended in what leaves the device unusable, so that no row can follow.

    After an illegal memory access, CUDA answers every call of a process with that same error. All
    trials that followed would fail, though nothing is wrong with them.
    """
    if not isinstance(problem, UsesDevice) or problem.device != "cuda":
        return
    import torch

    try:
        torch.cuda.synchronize()
    except Exception as lost:
        numbers = sorted({trial.number for trial, _ in jobs})
        raise DeviceLost(
            f"trials {numbers[0]} to {numbers[-1]}: the GPU must answer after a training that "
            f"failed, found {told(lost)[:LONGEST]}. This process cannot use it any more; what was "
            "finished is kept. Run the same command again. If it ends at these trials again, train "
            "them on the CPU (CUDA_VISIBLE_DEVICES= before the command), where only the trial that "
            "is to blame fails."
        ) from error


def _measured(
    problem: Problem, values: Values, seeds: Sequence[int]
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return the measures, name → [n], and what runs showed on the way, name → [n,T]."""
    if isinstance(problem, TellsOnTheWay) and problem.free is not None:
        return problem.measure_along(values, seeds)
    return problem.measure(values, seeds), {}


def _way(
    curves: dict[str, FloatArray], i: int, trial: Trial, free: str | None
) -> dict[str, list[float]]:
    """Return one trial's curves, which end where it does, however long its neighbours' are."""
    if free is None:
        return {}
    length = int(trial.settings[free])
    return {name: column[i, :length].tolist() for name, column in curves.items()}


def _with_block(problem: Problem, block: int) -> Problem:
    """Return the problem with another number of rows measured at once."""
    smaller: Problem = dataclasses.replace(problem, block=block)  # type: ignore[type-var]
    return smaller


def reason_of(error: Exception, private: bool = False) -> str:
    """Return one line that says why a training failed.

    On private data it has nothing of the error's own words, which may tell of them.
    """
    if private:
        what = "out of memory" if out_of_memory(error) else "an error"
        return f"training ended in {what}; which is left out, since it may tell of private data"
    line = told(error)
    if out_of_memory(error):
        line = f"out of memory, even trained alone: {line.partition(': ')[2]}"
    return printable(line[:LONGEST])


def _failure(problem: Problem, row: dict[str, float]) -> str | None:
    """Return why a row counts as failed, if it does."""
    for name, sentence in problem.failures.items():
        if math.isfinite(row.get(name, math.nan)):
            return sentence.format(row[name])
    for judge in judges(problem):
        value = row.get(judge.measure, math.nan)
        if not math.isfinite(value):
            return f"{judge.name} must be a finite number, found {value}"
    return None
