"""What is known: every point measured so far, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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

    A run may tell more than its own point: where one variable is free along it (the rounds), free_x and free_y hold what
    it showed on the way at smaller values of that variable.
    """

    x: FloatArray  # [n,d] in the unit cube
    y: FloatArray  # [n,m], nan where a trial failed
    batch: NDArray[np.int64]  # [n], which call of the optimizer proposed the point
    free_x: FloatArray = field(default_factory=_none)  # [e,d]
    free_y: FloatArray = field(default_factory=_none)  # [e,m], nan where not measured
    free_of: NDArray[np.int64] = field(default_factory=_nowhere)  # [e], the row that each came from
    runs: NDArray[np.int64] = field(
        default_factory=_nowhere
    )  # [n], the trainings that a row is the mean of; 1 unless told
    spread: FloatArray = field(
        default_factory=_none
    )  # [n,m], standard deviation over them; nan where it is not known

    def __post_init__(self) -> None:
        if not (
            self.x.ndim == self.y.ndim == 2
            and self.batch.ndim == 1
            and len(self.x) == len(self.y) == len(self.batch)
        ):
            raise SettingError(
                f"history: x [n,d], y [n,m] and batch [n] must agree, found {self.x.shape}, "
                f"{self.y.shape}, {self.batch.shape}."
            )
        if len(self.free_of) == 0:
            object.__setattr__(self, "free_x", np.empty((0, self.x.shape[1])))
            object.__setattr__(self, "free_y", np.empty((0, self.y.shape[1])))
        e, found = len(self.free_of), (self.free_x.shape, self.free_y.shape, self.free_of.shape)
        if found != ((e, self.x.shape[1]), (e, self.y.shape[1]), (e,)):
            raise SettingError(
                f"history: free_x [e,d], free_y [e,m] and free_of [e] must agree, found {found[0]}, {found[1]}, {found[2]}."
            )
        n = len(self)
        unless_told = {"runs": np.ones(n, np.int64), "spread": np.full(self.y.shape, np.nan)}
        for name, array in unless_told.items():
            if len(getattr(self, name)) == 0:
                object.__setattr__(self, name, array)
            elif getattr(self, name).shape != array.shape:
                raise SettingError(
                    f"history: {name} must be of shape {array.shape}, found {getattr(self, name).shape}."
                )

    def __len__(self) -> int:
        return len(self.x)

    @classmethod
    def empty(cls, d: int, m: int) -> History:
        return cls(np.empty((0, d)), np.empty((0, m)), np.empty(0, dtype=np.int64))

    @property
    def batches(self) -> int:
        """The number of batches so far."""
        return int(self.batch[-1]) + 1 if len(self) else 0

    @property
    def failed(self) -> NDArray[np.bool_]:
        """[n], which rows were not measured to their end."""
        return np.asarray(~np.isfinite(self.y).all(axis=1))

    def before(self, batch: int) -> History:
        """Return the rows of earlier batches, and what their runs showed on the way."""
        keep = self.batch < batch
        kept = keep[self.free_of]
        row = np.cumsum(keep) - 1  # where each row that is kept now stands
        return History(
            self.x[keep],
            self.y[keep],
            self.batch[keep],
            self.free_x[kept],
            self.free_y[kept],
            row[self.free_of[kept]],
            self.runs[keep],
            self.spread[keep],
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
        batch = np.full(len(x), self.batches, dtype=np.int64)
        new = History(x, y, batch)
        longer = replace(
            self,
            **{
                name: np.concatenate([getattr(self, name), getattr(new, name)])
                for name in ("x", "y", "batch", "runs", "spread")
            },
        )
        if free_x is None or free_y is None or free_of is None:
            return longer
        return replace(
            longer,
            free_x=np.vstack([self.free_x, free_x]),
            free_y=np.vstack([self.free_y, free_y]),
            free_of=np.concatenate([self.free_of, len(self) + free_of]),
        )
