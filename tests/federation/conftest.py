"""What the tests of data share: the real data sets where there are copies, and small files in their formats."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpareto.federation.data import FILES, Data, Dataset, load, present

NAMED = os.environ.get("FEDPARETO_DATA")  # before any test changes it
BESIDE = Path(__file__).parents[3] / "shared" / "data"
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with copies of MNIST, Fashion-MNIST and CIFAR-10."""
    folder = Path(NAMED).expanduser() if NAMED else BESIDE
    missing = [name for name in FILES if present(name, folder) is None]
    if missing:
        pytest.skip(f"there are no copies of {', '.join(missing)} in {folder}; FEDPARETO_DATA may name another folder")
    return folder


@pytest.fixture(scope="session")
def cifar10(real_data: Path) -> Dataset:
    """CIFAR-10, decoded once."""
    return load(Data("cifar10", directory=str(real_data)))


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes as an idx file: two zeros, the type, the rank, the shape, the bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="session")
def idx_files() -> Callable[..., dict[str, np.ndarray]]:
    """Write the four idx files of a data set like MNIST into a folder, and return the arrays that they hold."""

    def write(folder: Path, zipped: bool = True, train: int = 40, test: int = 20) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(0)
        arrays = {"x_train": draw.integers(0, 256, (train, 5, 4), np.uint8), "y_train": (np.arange(train) % 10).astype(np.uint8),
                  "x_test": draw.integers(0, 256, (test, 5, 4), np.uint8), "y_test": (np.arange(test) % 10).astype(np.uint8)}
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in zip(IDX, arrays.values(), strict=True):
            path = folder / (f"{name}.gz" if zipped else name)
            path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
        return arrays

    return write


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Leave the second core to others: two threads that wait for each other on busy cores are many times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
