"""What is known: every point measured so far, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray

SURE = 2.0  # standard errors by which a row may be better than it looks, or worse


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
    # [n,m+c], their standard deviation, else nan
    spread: FloatArray = field(default_factory=_none)
    # measures under a limit that are no objectives, [n,c] and [e,c]
    limited: FloatArray = field(default_factory=_none)
    free_limited: FloatArray = field(default_factory=_none)
    pending: FloatArray = field(default_factory=_none)  # [p,d], proposed since, and not known yet

    def __post_init__(self) -> None:
        shapes = [self.x.shape, self.y.shape, self.batch.shape]
        if list(map(len, shapes)) != [2, 2, 1] or len({shape[0] for shape in shapes}) > 1:
            found = ", ".join(map(str, shapes))
            raise SettingError(
                f"history: x [n,d], y [n,m] and batch [n] must agree, found {found}."
            )
        self._check_free()
        self._check_limited()
        self._check_pending()
        self._fill("runs", np.ones(len(self), np.int64))
        self._fill("spread", np.full(self.judged.shape, np.nan))

    def _check_pending(self) -> None:
        """Refuse pending points of another space; give their width to none."""
        d = self.x.shape[1]
        if self.pending.size == 0:
            object.__setattr__(self, "pending", np.empty((len(self.pending), d)))
        elif self.pending.ndim != 2 or self.pending.shape[1] != d:
            raise SettingError(
                f"history: pending must be of shape [p,{d}], found {self.pending.shape}."
            )

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

    def _check_limited(self) -> None:
        """Refuse limited and free_limited that disagree; give their shape to those left out."""
        if self.limited.size == 0:
            c = self.limited.shape[1] if self.limited.ndim == 2 else 0
            object.__setattr__(self, "limited", np.empty((len(self), c)))
        shapes = [self.limited.shape, self.free_limited.shape]
        c = shapes[0][-1]
        if self.free_limited.size == 0:
            object.__setattr__(self, "free_limited", np.empty((len(self.free_of), c)))
        if shapes[0] != (len(self), c) or self.free_limited.shape != (len(self.free_of), c):
            found = ", ".join(map(str, shapes))
            raise SettingError(
                f"history: limited [n,c] and free_limited [e,c] must agree, found {found}."
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
    def empty(cls, d: int, m: int, c: int = 0) -> History:
        """Return a history of no rows: points of d variables, m objectives, c limits beside."""
        none = np.empty(0, dtype=np.int64)
        return cls(np.empty((0, d)), np.empty((0, m)), none, limited=np.empty((0, c)))

    @property
    def batches(self) -> int:
        """The number of batches so far."""
        return int(self.batch[-1]) + 1 if len(self) else 0

    @property
    def failed(self) -> NDArray[np.bool_]:
        """[n], which rows were not measured to their end."""
        return np.asarray(~np.isfinite(self.judged).all(axis=1))

    @property
    def judged(self) -> FloatArray:
        """[n,m+c], what rows are judged by: objectives, then limited measures."""
        return np.hstack([self.y, self.limited])

    @property
    def free_judged(self) -> FloatArray:
        """[e,m+c], the same of what runs showed on the way."""
        return np.hstack([self.free_y, self.free_limited])

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
            self.limited[:end],
            self.free_limited[kept],
        )

    def only(self, rows: NDArray[np.int64]) -> History:
        """Return some of the rows, in order, and what their runs showed on the way."""
        place = np.full(len(self), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        kept = place[self.free_of] >= 0
        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            batch=self.batch[rows],
            free_x=self.free_x[kept],
            free_y=self.free_y[kept],
            free_of=place[self.free_of[kept]],
            runs=self.runs[rows],
            spread=self.spread[rows],
            limited=self.limited[rows],
            free_limited=self.free_limited[kept],
        )

    def extend(
        self,
        x: FloatArray,
        y: FloatArray,
        free_x: FloatArray | None = None,
        free_y: FloatArray | None = None,
        free_of: NDArray[np.int64] | None = None,
        limited: FloatArray | None = None,
        free_limited: FloatArray | None = None,
    ) -> History:
        """Return the history with one more batch; free_of [e] counts within that batch."""
        new = History(
            x,
            y,
            np.full(len(x), self.batches, dtype=np.int64),
            _none() if free_x is None else free_x,
            _none() if free_y is None else free_y,
            _nowhere() if free_of is None else free_of,
            limited=np.empty((len(x), 0)) if limited is None else limited,
            free_limited=_none() if free_limited is None else free_limited,
        )
        return self.followed_by(new)

    def followed_by(self, later: History) -> History:
        """Return these rows and then later ones."""
        return History(
            np.concatenate([self.x, later.x]),
            np.concatenate([self.y, later.y]),
            np.concatenate([self.batch, later.batch]),
            np.vstack([self.free_x, later.free_x]),
            np.vstack([self.free_y, later.free_y]),
            np.concatenate([self.free_of, len(self) + later.free_of]),
            np.concatenate([self.runs, later.runs]),
            np.concatenate([self.spread, later.spread]),
            np.concatenate([self.limited, later.limited]),
            np.vstack([self.free_limited, later.free_limited]),
        )


def pooled(spread: FloatArray, runs: NDArray[np.int64]) -> FloatArray:
    """Return the standard deviation [m] of one training, of trials [n,m] trained so often [n]."""
    freedom = runs - 1
    return np.asarray(np.sqrt((freedom[:, None] * spread**2).sum(axis=0) / freedom.sum()))
