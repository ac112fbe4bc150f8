"""What is known: every point measured so far, frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray


@dataclass(frozen=True)
class History:
    """Points and what was measured there, in the order proposed."""

    x: FloatArray  # [n,d] in the unit cube
    y: FloatArray  # [n,m], nan where a trial failed
    batch: NDArray[np.int64]  # [n], which call of the optimizer proposed the point

    def __post_init__(self) -> None:
        if not (self.x.ndim == self.y.ndim == 2 and self.batch.ndim == 1 and len(self.x) == len(self.y) == len(self.batch)):
            raise SettingError(f"history: x [n,d], y [n,m] and batch [n] must agree, found {self.x.shape}, "
                               f"{self.y.shape}, {self.batch.shape}.")

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
        """[n], which rows were not measured."""
        return np.asarray(~np.isfinite(self.y).all(axis=1))

    def before(self, batch: int) -> History:
        """Return the rows of earlier batches."""
        keep = self.batch < batch
        return History(self.x[keep], self.y[keep], self.batch[keep])

    def extend(self, x: FloatArray, y: FloatArray) -> History:
        """Return the history with one more batch."""
        batch = np.full(len(x), self.batches, dtype=np.int64)
        return History(np.vstack([self.x, x]), np.vstack([self.y, y]), np.concatenate([self.batch, batch]))
