"""What an optimizer is: everything evaluated so far in, the next points out."""

from __future__ import annotations

from typing import Protocol

from fedpareto.history import History
from fedpareto.problem import Problem
from fedpareto.space import FloatArray


class Optimizer(Protocol):
    """A frozen dataclass of settings with one pure method: same arguments, same points.

    It may have others, as pure. `finished(problem, history, seed) -> bool` ends a study between two batches.

    `worth_repeating(problem, history, x, y, runs) -> bool [n]` is asked before each further training of a batch's trials, history being the
    batches before: which points x [n,d], each measured as y [n,m], the mean of so many runs [n], are to be trained again? It is asked of
    what runs showed on the way too; a trial none of whose points is wanted ends with the trainings that it has (`history.runs`).

    Each row must be judged by itself.
    """

    @property
    def batch(self) -> int:
        """How many points it likes to propose at once."""

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        """Return the next points [n,d] in the unit cube; history holds whole batches only."""
