"""What is asked: a space to search, numbers to make small, and a way to measure them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray, Space, Values


@dataclass(frozen=True)
class Objective:
    """A measure to minimise, with an optional limit that must hold.

    reference is this objective's component of the hypervolume reference point. proxy says which
    formula stands in for a guarantee, where the measure is not one itself.
    """

    name: str
    measure: str = ""
    limit: float | None = None
    penalty: float = 20.0  # α of Kang 2023, Eq. 8
    reference: float = 1.0
    proxy: str | None = None

    def __post_init__(self) -> None:
        if not self.measure:
            object.__setattr__(self, "measure", self.name)
        for key in ("limit", "penalty", "reference"):
            value = getattr(self, key)
            if value is not None and not math.isfinite(value):
                raise SettingError(
                    f"objective {self.name}: {key} must be a finite number, found {value}."
                )
        if self.penalty < 0:
            raise SettingError(
                f"objective {self.name}: penalty must be at least 0, found {self.penalty}."
            )


class Problem(Protocol):
    """A space, objectives and a measurement.

    measure returns everything it measured, name → [n]; row i depends on values[...][i] and seeds[i]
    alone. A row that could not be measured is nan; failures names the measures that, where finite,
    say why, each with its sentence.

    A problem may be able to do more: see Knows, TellsOnTheWay, Checks and MayBePrivate.
    `fedpareto.testing.check_problem` checks all of it.
    """

    @property
    def space(self) -> Space: ...

    @property
    def objectives(self) -> tuple[Objective, ...]: ...

    @property
    def block(self) -> int:
        """How many rows are measured at once, at the most."""

    @property
    def failures(self) -> dict[str, str]: ...

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]: ...


@runtime_checkable
class Knows(Protocol):
    """A problem that can say some measures from the settings alone, without a run."""

    def known(self, values: Values, names: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Return those of the named measures that need no run, name → [n]: what measure would give.

        Without names, it answers for the measures of the objectives. What it leaves out has to be
        measured.
        """


@runtime_checkable
class TellsOnTheWay(Protocol):
    """A problem in which a long run also shows what shorter runs would have measured."""

    @property
    def free(self) -> str | None:
        """The searched whole-numbered variable, such as the rounds, that says how long a run is.

        None where that is not searched: then a run tells nothing beside its end.
        """

    def measure_along(
        self, values: Values, seeds: Sequence[int]
    ) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return what measure returns, and the objectives' measures after each step, name → [n,T].

        T is the length of the longest run. Column t - 1 is what a run of length t would measure; it
        is nan beyond a row's own end, and may be nan where nothing was measured on the way.
        """


@runtime_checkable
class Checks(Protocol):
    """A problem that can find what is wrong (missing data, a broken model) before anything runs."""

    def check(self) -> None:
        """Raise a FedparetoError that says what is wrong, if anything is."""


@runtime_checkable
class JoinsRepeats(Protocol):
    """A problem that measures several repeats of the same points faster in one call."""

    @property
    def repeats_at_once(self) -> int:
        """How many repeats, each with a seed of its own, are worth measuring in one call."""


@runtime_checkable
class MayBePrivate(Protocol):
    """A problem that can say that it measures on private data."""

    @property
    def private(self) -> bool:
        """Whether nothing may be told of a measurement but what noise hides."""


@runtime_checkable
class Recalls(Protocol):
    """A problem that can be looked at without its data, by what is kept of them."""

    def facts(self, seed: int) -> dict[str, Any]:
        """Return what looking at its rows needs of its data, as plain data."""

    def recalling(self, facts: Mapping[str, Any]) -> Problem:
        """Return the problem to look at by such facts: it needs no data, and cannot measure."""


@runtime_checkable
class HasBaselines(Protocol):
    """A problem whose trials can be held against something simpler."""

    @property
    def loss(self) -> Objective | None:
        """The objective that says how good models are: neither privacy nor cost."""

    @property
    def loss_measure(self) -> str:
        """The measure of the loss that baselines have too."""

    def trivial(self, seeds: Sequence[int]) -> list[dict[str, float]]:
        """Return the measures of the best constant answer in each of these repeats."""

    def unprotected(self) -> Problem | None:
        """Return the problem without protection; None where that is not to be measured."""


def loss_of(problem: Problem) -> Objective | None:
    """Return the objective that says how good models are; None where a problem has none."""
    return problem.loss if isinstance(problem, HasBaselines) else None


def is_private(problem: Problem) -> bool:
    """Say whether a problem measures on private data."""
    return isinstance(problem, MayBePrivate) and problem.private


def free_variable(problem: Problem) -> str | None:
    """Return the searched variable along which one run tells all shorter ones; None for none."""
    return problem.free if isinstance(problem, TellsOnTheWay) else None


def limits(objectives: Sequence[Objective]) -> FloatArray:
    """Return the limits [m], infinite where there is none."""
    return np.array([math.inf if o.limit is None else o.limit for o in objectives])


def reference(objectives: Sequence[Objective]) -> FloatArray:
    """Return the hypervolume reference point [m]."""
    return np.array([o.reference for o in objectives])


def feasible(objectives: Sequence[Objective], y: FloatArray) -> NDArray[np.bool_]:
    """Say which rows of y [n,m] were measured and hold every limit."""
    return np.asarray(np.isfinite(y).all(axis=1) & (y <= limits(objectives)).all(axis=1))


def penalised(objectives: Sequence[Objective], y: FloatArray) -> FloatArray:
    """Add each limit's penalty to y [n,m] (Kang 2023, Eq. 8 and 10)."""
    weights = np.array([o.penalty for o in objectives])
    return np.asarray(y + weights * np.maximum(y - limits(objectives), 0.0))


_listener: ContextVar[Callable[[float], None]] = ContextVar("listener", default=lambda share: None)


def tell(share: float) -> None:
    """Say what share of the block under way is done, to whoever listens."""
    _listener.get()(share)


@contextlib.contextmanager
def listening(listener: Callable[[float], None]) -> Iterator[None]:
    """Hear how far a long measurement has come."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
