"""What an optimizer is: everything evaluated so far in, the next points out."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpareto.history import History
from fedpareto.problem import Problem
from fedpareto.space import FloatArray, Space


class Optimizer(Protocol):
    """A frozen dataclass of settings with one pure method: same arguments, same points.

    It may be able to do more, as purely: see Finishes and ChoosesRepeats.
    `fedpareto.testing.check_optimizer` checks all of it.
    """

    @property
    def batch(self) -> int:
        """How many points it likes to propose at once."""

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        """Return the next points [n,d] in the unit cube; history holds whole batches only.

        history.pending [p,d] are points that were proposed since, and are not measured yet.
        """


@runtime_checkable
class Finishes(Protocol):
    """An optimizer that may end a study before its budget is spent."""

    def finished(self, problem: Problem, history: History, seed: int) -> bool:
        """Say whether further trials are not worth it; history holds whole batches only."""


@runtime_checkable
class AsksWhatIsKnown(Protocol):
    """An optimizer that asks the problem what is known without a run (`problem.Knows`)."""

    asks_known: ClassVar[bool]


@runtime_checkable
class StartsAround(Protocol):
    """An optimizer whose first generation lies around the means that variables may have."""

    def first(self, space: Space, n: int, seed: int, skip: int) -> FloatArray:
        """Return n points [n,d] of the first generation, after `skip` others."""


@runtime_checkable
class ChoosesRepeats(Protocol):
    """An optimizer that chooses which trials are trained again, up to the study's repeats."""

    def worth_repeating(
        self, problem: Problem, history: History, tried: History
    ) -> NDArray[np.bool_]:
        """Say which points of the batch under way are to be trained again, [n].

        tried holds them and what was measured there so far, each row the mean of as many trainings
        as its runs say; history holds the batches before. Each row is judged by itself.

        It is asked before each further training, and of what runs showed on the way too. A trial
        none of whose points is wanted keeps the trainings that it has (`history.runs`).
        """
