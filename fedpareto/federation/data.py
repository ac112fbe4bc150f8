"""Data: images or rows with labels, kept once as they are and shared by all federations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError
from fedpareto.settings import setting


@dataclass(frozen=True)
class Dataset:
    """Training and test data; an input is x * scale."""

    x_train: NDArray[np.uint8]  # [N, ...]
    y_train: NDArray[np.int64]  # [N]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x_train.shape[1:])

    @property
    def classes(self) -> int:
        return int(max(self.y_train.max(), self.y_test.max())) + 1


@dataclass(frozen=True)
class Data:
    """Which data, and how they lie with the clients."""

    name: str = setting("digits", help="which data set", options=("digits",), search=False)
    clients: int = setting(10, help="number of clients K", at_least=1, at_most=10**7, search=False)
    split: str = setting("iid", help="how the images are dealt to the clients", options=("iid",), search=False)


def _digits() -> Dataset:
    """Load the 1,797 handwritten digits that scikit-learn carries; every fifth is kept for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = images.astype(np.uint8).reshape(-1, 1, 8, 8), labels.astype(np.int64)
    test = np.arange(len(y)) % 5 == 4
    return Dataset(x[~test], y[~test], x[test], y[test], scale=1 / 16)


DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
}


@functools.lru_cache(maxsize=4)
def load(data: Data) -> Dataset:
    """Return the data set, read once per process."""
    dataset = DATASETS[data.name]()
    if data.clients > len(dataset.y_train):
        raise DataError(f"data.clients: every client needs an image, so at most {len(dataset.y_train):,} clients for "
                        f"{data.name}, found {data.clients:,}. Lower data.clients.")
    return dataset
