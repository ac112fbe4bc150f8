"""What is known: every point measured so far, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray


def _none() -> FloatArray:
    return np.empty((0, 0))


def _nowhere() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class History:
    """Points and what was measured there, in the order proposed.

    A long run may also show what shorter ones would have measured (TellsOnTheWay of problem.py):
    free_x and free_y hold that, at smaller values of the variable that says how long a run is.
    Where batches overlap (a study's in_flight), pending holds the points of those under way.
    """

    x: FloatArray  # [n,d] in the unit cube
    y: FloatArray  # [n,m], nan where a trial failed
    batch: NDArray[np.int64]  # [n], which call of the optimizer proposed the point
    free_x: FloatArray = field(default_factory=_none)  # [e,d]
    free_y: FloatArray = field(default_factory=_none)  # [e,m], nan where not measured
    free_of: NDArray[np.int64] = field(default_factory=_nowhere)  # [e], the row each came from
    runs: NDArray[np.int64] = field(default_factory=_nowhere)  # [n], trainings of each row, else 1
    spread: FloatArray = field(default_factory=_none)  # [n,m], their standard deviation, else nan
    pending: FloatArray = field(default_factory=_none)  # [p,d], proposed since, and not known yet

    def __post_init__(self) -> None:
        shapes = [self.x.shape, self.y.shape, self.batch.shape]
        if list(map(len, shapes)) != [2, 2, 1] or len({shape[0] for shape in shapes}) > 1:
            found = ", ".join(map(str, shapes))
            raise SettingError(
                f"history: x [n,d], y [n,m] and batch [n] must agree, found {found}."
            )
        self._check_free()
        if self.pending.size == 0:
            object.__setattr__(self, "pending", np.empty((len(self.pending), self.x.shape[1])))
        elif self.pending.ndim != 2 or self.pending.shape[1] != self.x.shape[1]:
            raise SettingError(
                f"history: pending must be [p,{self.x.shape[1]}], found {self.pending.shape}."
            )
        self._fill("runs", np.ones(len(self), np.int64))
        self._fill("spread", np.full(self.y.shape, np.nan))

    def _check_free(self) -> None:
        """Refuse free_x, free_y and free_of that disagree; give their width to empty ones."""
        e = len(self.free_of)
        d = self.x.shape[1]
        m = self.y.shape[1]
        if e == 0:
            object.__setattr__(self, "free_x", np.empty((0, d)))
            object.__setattr__(self, "free_y", np.empty((0, m)))
        shapes = [self.free_x.shape, self.free_y.shape, self.free_of.shape]
        if shapes != [(e, d), (e, m), (e,)]:
            found = ", ".join(map(str, shapes))
            raise SettingError(
                f"history: free_x [e,d], free_y [e,m] and free_of [e] must agree, found {found}."
            )

    def _fill(self, name: str, default: NDArray[Any]) -> None:
        """Give an array that was left out its default; refuse one of another shape."""
        given = getattr(self, name)
        if len(given) == 0:
            object.__setattr__(self, name, default)
        elif given.shape != default.shape:
            raise SettingError(
                f"history: {name} must be of shape {default.shape}, found {given.shape}."
            )

    def __len__(self) -> int:
        return len(self.x)

    @classmethod
    def empty(cls, d: int, m: int) -> History:
        """Return a history of no rows, for points of d variables and m objectives."""
        return cls(np.empty((0, d)), np.empty((0, m)), np.empty(0, dtype=np.int64))

    @property
    def batches(self) -> int:
        """The number of batches so far."""
        return int(self.batch[-1]) + 1 if len(self) else 0

    @property
    def failed(self) -> NDArray[np.bool_]:
        """[n], which rows were not measured to their end."""
        return np.asarray(~np.isfinite(self.y).all(axis=1))

    @property
    def tried(self) -> FloatArray:
        """[n+p,d], every point proposed so far, in order: measured or not known yet."""
        return np.vstack([self.x, self.pending]) if len(self.pending) else self.x

    @property
    def asked(self) -> int:
        """How many points were proposed so far, in whole batches."""
        return len(self.x) + len(self.pending)

    def before(self, batch: int) -> History:
        """Return the rows of earlier batches, and what their runs showed on the way."""
        end = int(np.searchsorted(self.batch, batch))
        kept = self.free_of < end
        return History(
            self.x[:end],
            self.y[:end],
            self.batch[:end],
            self.free_x[kept],
            self.free_y[kept],
            self.free_of[kept],
            self.runs[:end],
            self.spread[:end],
        )

    def extend(
        self,
        x: FloatArray,
        y: FloatArray,
        free_x: FloatArray | None = None,
        free_y: FloatArray | None = None,
        free_of: NDArray[np.int64] | None = None,
    ) -> History:
        """Return the history with one more batch; free_of [e] counts within that batch."""
        new = History(x, y, np.full(len(x), self.batches, dtype=np.int64))
        longer = replace(
            self,
            x=np.concatenate([self.x, new.x]),
            y=np.concatenate([self.y, new.y]),
            batch=np.concatenate([self.batch, new.batch]),
            runs=np.concatenate([self.runs, new.runs]),
            spread=np.concatenate([self.spread, new.spread]),
        )
        if free_x is None or free_y is None or free_of is None:
            return longer
        return replace(
            longer,
            free_x=np.vstack([self.free_x, free_x]),
            free_y=np.vstack([self.free_y, free_y]),
            free_of=np.concatenate([self.free_of, len(self) + free_of]),
        )
