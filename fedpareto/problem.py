"""What is asked: a space to search, numbers to make small, and a way to measure them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

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

    section: ClassVar[str] = "objectives"  # of a study file

    def __post_init__(self) -> None:
        if not self.measure:
            object.__setattr__(self, "measure", self.name)
        _check_numbers(f"objective {self.name}", self, ("limit", "penalty", "reference"))


@dataclass(frozen=True)
class Limit:
    """A measure that must not exceed a limit, and is not made small.

    It is no objective: it has no place in the hypervolume. proxy is as of an Objective.
    """

    name: str
    limit: float
    measure: str = ""
    penalty: float = 20.0
    proxy: str | None = None

    section: ClassVar[str] = "limits"  # of a study file

    def __post_init__(self) -> None:
        if not self.measure:
            object.__setattr__(self, "measure", self.name)
        _check_numbers(f"limit {self.name}", self, ("limit", "penalty"))

    @property
    def reference(self) -> float:
        """The worst value that is still of use."""
        return self.limit


Judge = Objective | Limit  # what a point is judged by


def _check_numbers(where: str, judge: Judge, keys: Sequence[str]) -> None:
    """Refuse numbers of an objective or a limit that are not finite, and a negative penalty."""
    for key in keys:
        value = getattr(judge, key)
        if value is not None and not math.isfinite(value):
            raise SettingError(f"{where}: {key} must be a finite number, found {value}.")
    if judge.penalty < 0:
        raise SettingError(f"{where}: penalty must be at least 0, found {judge.penalty}.")


class Problem(Protocol):
    """A space, objectives and a measurement.

    measure returns everything it measured, name → [n]; row i depends on values[...][i] and seeds[i]
    alone. A row that could not be measured is nan; failures names the measures that, where finite,
    say why, each with its sentence.

    A problem may be able to do more: see LimitsMeasures, Knows, TellsOnTheWay, Checks,
    SendsData and MayBePrivate.
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
class LimitsMeasures(Protocol):
    """A problem with limits on measures that are no objectives."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What must hold beside the objectives; names differ from theirs."""


@runtime_checkable
class Knows(Protocol):
    """A problem that can say some measures from the settings alone, without a run."""

    def known(self, values: Values, names: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Return those of the named measures that need no run, name → [n]: what measure would give.

        Without names, it answers for the measures of objectives and limits. What it leaves out has
        to be measured.
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
        """Return what measure returns, and measures after each step, name → [n,T].

        These are the measures of objectives and limits. T is the length of the longest run. Column
        t - 1 is what a run of length t would measure; it is nan beyond a row's own end, and may be
        nan where nothing was measured on the way.
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
class SortsPoints(Protocol):
    """A problem whose points are measured faster beside points that are like them."""

    def alike(self, settings: Mapping[str, Any]) -> tuple[float, ...]:
        """Return a key of a point, given its settings: near points have near keys."""


@runtime_checkable
class UsesDevice(Protocol):
    """A problem that may be measured on a GPU."""

    @property
    def device(self) -> str:
        """What it is measured on in this process: cpu or cuda."""


@runtime_checkable
class SendsData(Protocol):
    """A problem whose data are read once, and sent to every other process that measures it."""

    def data_to_send(self) -> Any:
        """Return the data, in a form that can be pickled."""

    def take_data(self, data: Any) -> None:
        """Use data that were sent in place of what this process would read."""


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


def limits_of(problem: Problem) -> tuple[Limit, ...]:
    """Return the limits of a problem on measures that are no objectives."""
    return problem.limits if isinstance(problem, LimitsMeasures) else ()


def judges(problem: Problem) -> tuple[Judge, ...]:
    """Return what points are judged by: the m objectives, then the c limits beside them."""
    return (*problem.objectives, *limits_of(problem))


def limits(judges: Sequence[Judge]) -> FloatArray:
    """Return the limits [m+c], infinite where an objective has none."""
    return np.array([math.inf if o.limit is None else o.limit for o in judges])


def reference(judges: Sequence[Judge]) -> FloatArray:
    """Return the worst values [m+c] of use: for objectives, the hypervolume reference point."""
    return np.array([o.reference for o in judges])


def feasible(judges: Sequence[Judge], y: FloatArray) -> NDArray[np.bool_]:
    """Say which rows of y [n,m+c] were measured and hold every limit."""
    return np.asarray(np.isfinite(y).all(axis=1) & (y <= limits(judges)).all(axis=1))


def excess(judges: Sequence[Judge], y: FloatArray) -> FloatArray:
    """Return by how much y [n,m+c] exceeds each limit, in units of the limit where not 0."""
    bound = limits(judges)
    return np.asarray(np.maximum(y - bound, 0.0) / units(bound))


def units(numbers: FloatArray) -> FloatArray:
    """Return the size of each number, 1 where it is 0 or infinite."""
    return np.where(np.isfinite(numbers) & (numbers != 0), np.abs(numbers), 1.0)


def penalised(judges: Sequence[Judge], y: FloatArray) -> FloatArray:
    """Return objectives [n,m] with penalties for what of y [n,m+c] exceeds limits.

    The limit of an objective counts in the objective itself (Kang 2023, Eq. 8 and 10). A limit
    beside them counts in every objective: α times the share by which it is exceeded, in units of
    the objective's reference.
    """
    m = sum(isinstance(o, Objective) for o in judges)
    weights = np.array([o.penalty for o in judges])
    own = y[:, :m] + weights[:m] * np.maximum(y[:, :m] - limits(judges[:m]), 0.0)
    if m == len(judges):
        return np.asarray(own)
    beside = excess(judges[m:], y[:, m:]) @ weights[m:]
    return np.asarray(own + beside[:, None] * units(reference(judges[:m])))


_listener: ContextVar[Callable[[float], None]] = ContextVar("listener", default=lambda share: None)


def tell(share: float) -> None:
    """Say how much of what is under way is done, to whoever listens."""
    _listener.get()(share)


@contextlib.contextmanager
def listening(listener: Callable[[float], None]) -> Iterator[None]:
    """Hear how far a long measurement has come."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def part(begins: float, size: float) -> Iterator[None]:
    """Tell a part, from 0 to 1, as from where it begins in the whole to that and its size."""
    outer = _listener.get()
    with listening(lambda share: outer(begins + share * size)):
        yield
