"""What an optimizer is: everything evaluated so far in, the next points out."""

from __future__ import annotations

from typing import Protocol

from fedpareto.history import History
from fedpareto.problem import Problem
from fedpareto.space import FloatArray


class Optimizer(Protocol):
    """A frozen dataclass of settings with one pure method: same arguments, same points."""

    @property
    def batch(self) -> int:
        """How many points it likes to propose at once."""

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        """Return the next points [n,d] in the unit cube; history holds whole batches only."""
