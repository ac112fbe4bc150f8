"""What trains a study's trials, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fedpareto.problem import Problem
from fedpareto.trials import Result, Trial

More = Callable[[], Sequence[Trial]]


class Executor(Protocol):
    """Whatever can be called so: it trains all trials of a study, in any order, anywhere.

    `more` gives trials that may be trained now and were not given before; each says by
    `repeats_left` which of its repeats are meant. It gives none while nothing more may begin: then
    results must be yielded before it is asked again, since they may decide what comes next. The
    executor ends when `more` gives none and nothing is under way.

    Results are yielded as they finish, each once, some together. `evaluate.blocks_of` says what is
    trained in one call, and `evaluate.results_of` trains it: with them, rows are the same whatever
    trained them. A FedparetoError is raised to the caller, since the user must mend something.
    `fedpareto.testing.check_executor` checks all of it.
    """

    def __call__(
        self, problem: Problem, more: More, seed: int, /
    ) -> Iterable[Sequence[Result]]: ...
