"""Blocks in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedpareto.evaluate import blocks_of, results_of
from fedpareto.executors.base import More
from fedpareto.problem import Problem
from fedpareto.trials import Result


def here(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    """Measure trials in this process and yield the results block by block."""
    while trials := more():
        for jobs in blocks_of(problem, trials):
            yield results_of(problem, jobs, seed)
