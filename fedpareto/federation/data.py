"""Data sets: images or rows with labels, loaded once and shared by all federations.

Files are looked for in the data directory: the study's `directory`, else the environment variable
FEDPARETO_DATA, else the user's cache. What is missing is downloaded where there is a network. Files
as published are checked against their md5 sums, whether they were downloaded or put there.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, SettingError, did_you_mean
from fedpareto.federation.download import Remote, download, verify
from fedpareto.federation.formats import (
    Arrays,
    call_function,
    read,
    read_cifar_archive,
    read_idx,
    read_jpegs,
    read_npz,
)
from fedpareto.settings import setting


@dataclass(frozen=True)
class Dataset:
    """Training and test data; an input is x * scale + shift."""

    x_train: NDArray[Any]  # [N, ...] uint8 or float32
    y_train: NDArray[Any]  # [N] int64 classes, or float32 numbers to predict
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    scale: float
    shift: float = 0.0

    @functools.cached_property
    def fingerprint(self) -> str:
        """What tells these training data from any other; found once."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.x_train, self.y_train):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input."""
        return tuple(self.x_train.shape[1:])

    @property
    def numbers(self) -> bool:
        """Say whether labels are numbers to predict rather than classes."""
        return self.y_train.dtype.kind == "f"

    @property
    def classes(self) -> int:
        """Return the number of classes; 1 where a number is to be predicted."""
        if self.numbers:
            return 1
        return int(max(self.y_train.max(), self.y_test.max())) + 1


@dataclass(frozen=True)
class Data:
    """Which data set to use, and how it is dealt to the clients."""

    name: str = setting(
        "digits",
        help=(
            "digits, mnist, fashion-mnist, cifar10, the path of an .npz file with x_train, "
            "y_train, x_test, y_test, or your own function as package.module:function"
        ),
        search=False,
    )
    clients: int = setting(10, help="number of clients K", at_least=1, at_most=10**7, search=False)
    split: str = setting(
        "iid",
        help=(
            "how the images are dealt to the clients: iid, at random in equal shares; dirichlet, "
            "each class in shares drawn from Dirichlet(alpha); shards, sorted by class and cut; "
            "unequal, at random in shares drawn from Dirichlet(alpha)"
        ),
        options=("iid", "dirichlet", "shards", "unequal"),
        search=False,
    )
    alpha: float = setting(
        0.5,
        help="evenness of dirichlet and unequal splits: small is uneven",
        above=0,
        at_most=1e6,
        search=False,
    )
    shards: int = setting(
        2, help="shards per client of a shards split", at_least=1, at_most=10_000, search=False
    )
    share: float = setting(
        1.0,
        help="share of the training images that is used, the first of a fixed shuffle",
        above=0,
        at_most=1,
        search=False,
    )
    directory: str = setting(
        "",
        help="where data files are; FEDPARETO_DATA or the user's cache if left out",
        search=False,
    )

    def __post_init__(self) -> None:
        if self.name not in SETS and not self.name.endswith(".npz") and ":" not in self.name:
            raise SettingError(
                f"name: there is no data set {self.name!r}. {did_you_mean(self.name, SETS)} Your "
                "own data: the path of an .npz file, or a function as package.module:function."
            )


@dataclass(frozen=True)
class Files:
    """The files in which a data set may be stored, how to read them, and where to download them."""

    # (file names, reader of their paths)
    ways: tuple[tuple[tuple[str, ...], Callable[..., Arrays]], ...]
    remotes: tuple[Remote, ...]


def _mnist_like(npz: str, folder: str, base: str, sums: tuple[str, str, str, str]) -> Files:
    """Return the files of a data set that has the idx files of MNIST: zipped, unzipped or .npz."""
    names = (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    )
    zipped = tuple(f"{folder}/{name}" for name in names)
    plain = tuple(name.removesuffix(".gz") for name in zipped)
    remotes = tuple(
        Remote(f"{base}/{name}", f"{folder}/{name}", md5)
        for name, md5 in zip(names, sums, strict=True)
    )
    ways: list[tuple[tuple[str, ...], Callable[..., Arrays]]] = [((npz,), read_npz)]
    for files in (zipped, plain):
        ways.append((files, lambda *paths: read_idx(paths[0].parent)))
    return Files(tuple(ways), remotes)


FILES: dict[str, Files] = {
    "mnist": _mnist_like(
        "mnist.npz",
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": _mnist_like(
        "fashion_mnist.npz",
        "fashion-mnist",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar10": Files(
        (
            (("cifar10.npz",), read_npz),
            (("cifar10-train-jpeg.npz", "cifar10-test-jpeg.npz"), read_jpegs),
            (("cifar-10-python.tar.gz",), read_cifar_archive),
        ),
        (
            Remote(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
            ),
        ),
    ),
}
SETS = ("digits", *FILES)


def directory(named: str = "") -> Path:
    """Return the data directory: the one named, else FEDPARETO_DATA, else the user's cache."""
    chosen = named or os.environ.get("FEDPARETO_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).expanduser() / "fedpareto"


def present(name: str, folder: Path) -> tuple[tuple[Path, ...], Callable[..., Arrays]] | None:
    """Return the files of a data set and their reader, or None if no complete set is there."""
    for names, reader in FILES[name].ways:
        paths = tuple(folder / file for file in names)
        if all(path.is_file() for path in paths):
            return paths, reader
    return None


def inventory(name: str, folder: Path) -> list[str] | None:
    """Return the names of a data set's files, or None if they are missing.

    A data set that needs no files has an empty list.
    """
    if name not in FILES:
        return []
    found = present(name, folder)
    if found is None:
        return None
    paths, _ = found
    return [str(path.relative_to(folder)) for path in paths]


def _digits() -> Arrays:
    """Return the 1,797 handwritten digits of scikit-learn; every fifth is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    test = np.arange(len(y)) % 5 == 4
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def _arrays(data: Data) -> Arrays:
    """Return the arrays of a data set: embedded, from files, or from the user's own source."""
    folder = directory(data.directory)
    if data.name == "digits":
        return _digits()
    if data.name not in FILES:
        if ":" in data.name:
            return call_function(data.name)
        return read(read_npz, _own_file(data.name, folder))
    paths, reader = present(data.name, folder) or _fetched(data.name, folder)
    for remote in FILES[data.name].remotes:
        if folder / remote.path in paths:
            verify(folder / remote.path, remote.md5)
    return read(reader, *paths)


def _own_file(name: str, folder: Path) -> Path:
    """Return the path of the user's .npz file, which may lie in the data directory."""
    for path in (Path(name).expanduser(), folder / name):
        if path.is_file():
            return path
    raise DataError(
        f"data.name: {name} must be an .npz file, found none beside the study file, in the working "
        f"folder or in {folder}."
    )


def _fetched(name: str, folder: Path) -> tuple[tuple[Path, ...], Callable[..., Arrays]]:
    """Download a data set; return its files and their reader."""
    ways = "; or ".join(" and ".join(names) for names, _ in FILES[name].ways)
    try:
        for remote in FILES[name].remotes:
            download(remote, folder)
    except (OSError, HTTPException) as error:
        raise DataError(
            f"{name}: needs its files in {folder}, found none and could not download them "
            f"({error}). Put one of these there: {ways}. Or name another folder: data.directory in "
            "the study, or FEDPARETO_DATA."
        ) from error
    found = present(name, folder)
    assert found is not None
    return found


def load(data: Data) -> Dataset:
    """Return the data set, which is read once per process."""
    dataset = _taken.get((data.name, data.directory, data.share))
    if dataset is None:
        dataset = _loaded(data.name, str(directory(data.directory)), data.share)
    if data.clients > len(dataset.y_train):
        raise DataError(
            f"data.clients: every client needs an image, so at most {len(dataset.y_train):,} "
            f"clients for {data.name}, found {data.clients:,}. Lower data.clients."
        )
    return dataset


_taken: dict[tuple[str, str, float], Dataset] = {}  # by name, directory and share


def take(data: Data, sent: Dataset) -> None:
    """Use a data set that another process read; it is copied, since what was sent may be locked."""
    _taken.clear()
    _taken[data.name, data.directory, data.share] = Dataset(
        sent.x_train.copy(),
        sent.y_train.copy(),
        sent.x_test.copy(),
        sent.y_test.copy(),
        sent.scale,
        sent.shift,
    )


@functools.lru_cache(maxsize=4)
def _loaded(name: str, folder: str, share: float) -> Dataset:
    arrays = _arrays(Data(name, directory=folder))
    x_train = _inputs(arrays["x_train"])
    x_test = _inputs(arrays["x_test"])
    kind = np.float32 if arrays["y_train"].dtype.kind == "f" else np.int64
    y_train = arrays["y_train"].astype(kind)
    y_test = arrays["y_test"].astype(kind)
    if share < 1:
        count = max(1, round(share * len(y_train)))
        keep = np.random.default_rng(0).permutation(len(y_train))[:count]
        x_train = x_train[keep]
        y_train = y_train[keep]
    return Dataset(x_train, y_train, x_test, y_test, _scale(name, x_train))


def _scale(name: str, x: NDArray[Any]) -> float:
    """Return the factor that brings inputs to [0, 1]; floats stay as they are."""
    if name == "digits":
        return 1 / 16
    if x.dtype == np.uint8:
        return 1 / 255
    return 1.0


def _inputs(x: NDArray[Any]) -> NDArray[Any]:
    """Return inputs as models take them: images as [n,channels,H,W], floats in single precision."""
    if x.ndim == 3:
        x = x[:, None]
    channels_last = x.ndim == 4 and x.shape[-1] in (1, 3) and x.shape[1] not in (1, 3)
    if channels_last:
        x = x.transpose(0, 3, 1, 2)
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
    return np.ascontiguousarray(x)
