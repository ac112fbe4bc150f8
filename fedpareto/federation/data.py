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
from dataclasses import dataclass, fields, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, SettingError, did_you_mean
from fedpareto.federation.catalog import FILES
from fedpareto.federation.download import download, verify
from fedpareto.federation.embedded import EMBEDDED, TABLES, digits
from fedpareto.federation.formats import (
    Arrays,
    call_function,
    checked,
    read,
    read_npz,
)
from fedpareto.federation.tables import arrays_of, is_file_of_table, read_table, standardised
from fedpareto.settings import is_own, setting

OWN = (".npz", ".csv", ".parquet")  # how names of files of the user's own end
WAYS = ("iid", "dirichlet", "shards", "unequal", "site")  # in which data are dealt


@dataclass(frozen=True)
class Dataset:
    """Training and test data; an input is x * scale + shift."""

    x_train: NDArray[Any]  # [N, ...] uint8 or float32
    y_train: NDArray[Any]  # [N] int64 classes, or float32 numbers to predict
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    scale: float
    shift: float = 0.0
    sites_train: NDArray[Any] | None = None  # [N] the site of each record, from 0, where told
    sites_test: NDArray[Any] | None = None
    labels: int | None = None  # how many classes there are, where these records may not show it

    @functools.cached_property
    def fingerprint(self) -> str:
        """What tells these training data from any other; found once."""
        digest = hashlib.blake2b(digest_size=16)
        sites = [] if self.sites_train is None else [self.sites_train]
        for array in (self.x_train, self.y_train, *sites):
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
        if self.labels is not None:
            return self.labels
        if self.numbers:
            return 1
        return int(max(self.y_train.max(), self.y_test.max())) + 1


@dataclass(frozen=True)
class Data:
    """Which data set to use, and how it is dealt to the clients."""

    name: str = setting(
        "digits",
        help=(
            "digits, mnist, fashion-mnist, cifar10, the table breast-cancer (columns hospital and "
            "diagnosis), the path of an .npz file with x_train, y_train, x_test, y_test, of a "
            ".csv or .parquet table, or your own function as package.module:function"
        ),
        search=False,
    )
    clients: int = setting(10, help="number of clients K", at_least=1, at_most=10**7, search=False)
    split: str = setting(
        "iid",
        help=(
            "how the records are dealt to the clients: iid, at random in equal shares; dirichlet, "
            "each class in shares drawn from Dirichlet(alpha); shards, sorted by class and cut; "
            "unequal, at random in shares drawn from Dirichlet(alpha); site, as the data say: each "
            "site is a client; or your own function as package.module:function"
        ),
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
        help="share of the training records that is used, the first of a fixed shuffle",
        above=0,
        at_most=1,
        search=False,
    )
    label: str = setting("", help="the column of a table that is to be predicted", search=False)
    site: str = setting(
        "", help="the column of a table that names the site of each record", search=False
    )
    test_share: float = setting(
        0.2,
        help="share of a table's records that is for testing, of each site where sites are named",
        above=0,
        at_most=0.9,
        search=False,
    )
    standardise: str = setting(
        "",
        help=(
            "bring every input to mean 0 and spread 1: site, by the training records of each "
            "record's site, which no ε of records counts; or the path of a .csv file of public "
            "statistics with the columns column, mean, spread; as they are if left out"
        ),
        search=False,
    )
    directory: str = setting(
        "",
        help="where data files are; FEDPARETO_DATA or the user's cache if left out",
        search=False,
    )

    def __post_init__(self) -> None:
        if self.name not in SETS and not self.name.endswith(OWN) and ":" not in self.name:
            raise SettingError(
                f"name: there is no data set {self.name!r}. {did_you_mean(self.name, SETS)} Your "
                "own data: the path of an .npz, .csv or .parquet file, or a function as "
                "package.module:function."
            )
        if self.split not in WAYS and ":" not in self.split:
            raise SettingError(
                f"split: there is no split {self.split!r}. {did_you_mean(self.split, WAYS)} Your "
                "own: a function as package.module:function."
            )
        self._check_table()

    def _check_table(self) -> None:
        """Refuse a table without a column of labels, and columns of what is no table."""
        if self.name in TABLES or is_file_of_table(self.name):
            if not self.label:
                raise SettingError(
                    f"label: must name the column of {self.name} that is to be predicted, found "
                    "none."
                )
            if self.label == self.site:
                raise SettingError(f"site: must be another column than label, found {self.site!r}.")
        elif self.label or self.site:
            raise SettingError(
                f"label and site: must go with a table (.csv, .parquet or breast-cancer), found "
                f"{self.name!r}. An .npz file names sites by the arrays site_train and site_test."
            )
        if self.standardise not in ("", "site") and not self.standardise.endswith(".csv"):
            raise SettingError(
                "standardise: must be site or the path of a .csv file of public statistics, found "
                f"{self.standardise!r}."
            )

    @property
    def own(self) -> bool:
        """Whether code of the user's own loads or deals the data."""
        return is_own(self.name) or is_own(self.split)


SETS = (*EMBEDDED, *FILES)


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


def _arrays(data: Data) -> Arrays:
    """Return the arrays of a data set: embedded, from files, or from the user's own source."""
    folder = directory(data.directory)
    if data.name == "digits":
        return digits()
    if data.name in TABLES:
        table = TABLES[data.name]()
        return arrays_of(data.name, table, data.label, data.site, data.test_share)
    if data.name not in FILES:
        if ":" in data.name:
            return call_function(data.name)
        path = own_file(data.name, folder)
        if is_file_of_table(data.name):
            return checked(read_table(path, data.label, data.site, data.test_share), str(path))
        return read(read_npz, path)
    paths, reader = present(data.name, folder) or _fetched(data.name, folder)
    for remote in FILES[data.name].remotes:
        if folder / remote.path in paths:
            verify(folder / remote.path, remote.md5)
    return read(reader, *paths)


def own_file(name: str, folder: Path) -> Path:
    """Return the path of the user's .npz file, which may lie in the data directory."""
    for path in (Path(name).expanduser(), folder / name):
        if path.is_file():
            return path
    kind = "an .npz" if name.endswith(".npz") else "a"
    raise DataError(
        f"data.name: {name} must be {kind} file, found none beside the study file, in the working "
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
    read_by = _read_by(data)
    dataset = _taken.get(read_by)
    if dataset is None:
        dataset = _loaded(replace(read_by, directory=str(directory(data.directory))))
    if data.clients > len(dataset.y_train):
        raise DataError(
            f"data.clients: every client needs an image, so at most {len(dataset.y_train):,} "
            f"clients for {data.name}, found {data.clients:,}. Lower data.clients."
        )
    return dataset


def _read_by(data: Data) -> Data:
    """Return what tells one data set from another: all but how it is dealt."""
    return replace(data, clients=1, split="iid", alpha=0.5, shards=2)


_taken: dict[Data, Dataset] = {}  # by what they are read by


def take(data: Data, sent: Dataset) -> None:
    """Use a data set that another process read; it is copied, since what was sent may be locked."""
    _taken.clear()
    held: dict[str, Any] = {field.name: getattr(sent, field.name) for field in fields(sent)}
    copies = {name: v.copy() for name, v in held.items() if isinstance(v, np.ndarray)}
    _taken[_read_by(data)] = Dataset(**{**held, **copies})


@functools.lru_cache(maxsize=4)
def _loaded(data: Data) -> Dataset:
    share, arrays = data.share, _arrays(data)
    if data.standardise:
        arrays = standardised(arrays, data.standardise, directory(data.directory))
    x_train = _inputs(arrays["x_train"])
    x_test = _inputs(arrays["x_test"])
    kind = np.float32 if arrays["y_train"].dtype.kind == "f" else np.int64
    y_train = arrays["y_train"].astype(kind)
    y_test = arrays["y_test"].astype(kind)
    sites_train, sites_test = arrays.get("site_train"), arrays.get("site_test")
    if share < 1:
        count = max(1, round(share * len(y_train)))
        keep = np.random.default_rng(0).permutation(len(y_train))[:count]
        x_train = x_train[keep]
        y_train = y_train[keep]
        sites_train = None if sites_train is None else sites_train[keep]
    scale = _scale(data.name, x_train)
    return Dataset(x_train, y_train, x_test, y_test, scale, 0.0, sites_train, sites_test)


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
