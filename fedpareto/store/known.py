"""What the trials of a store tell an optimizer: those that are settled are read once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Protocol

from fedpareto.history import History
from fedpareto.problem import Problem, free_variable, limits_of
from fedpareto.trials import Trial, known_of

PIECE = 2000  # trials that are held at once


class Rows(Protocol):
    """A store, as far as it is needed here."""

    def settled(self) -> int: ...

    def trials(self, *, first: int = ..., end: int = ...) -> list[Trial]: ...


def asked_of(problem: Problem) -> Hashable:
    """Return what decides which columns of trials a problem asks for."""
    objectives = tuple(o.measure for o in problem.objectives)
    limited = tuple(limit.measure for limit in limits_of(problem))
    return objectives, limited, problem.space, free_variable(problem)


def settled(rows: Rows, first: int = 0) -> Iterator[list[Trial]]:
    """Yield the trials before the first pending one, from a number on, a few at a time."""
    end = rows.settled()
    for at in range(first, end, PIECE):
        yield rows.trials(first=at, end=min(end, at + PIECE))


class Known:
    """What a store's trials tell of a problem: numbers alone, so that many take little memory."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._settled = known_of(problem, [])
        self._count = 0  # trials that it is of

    def history(self, rows: Rows) -> History:
        """Return what all finished trials tell."""
        for piece in settled(rows, self._count):
            self._settled = self._settled.followed_by(known_of(self._problem, piece))
            self._count += len(piece)
        return self._settled.followed_by(known_of(self._problem, rows.trials(first=self._count)))
