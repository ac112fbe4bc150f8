"""The records of one site, as its own function `load_site` returns them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.contract import Records
from fedpareto.deploy.deployment import Deployment
from fedpareto.errors import DataError
from fedpareto.federation.data import Dataset
from fedpareto.federation.formats import read
from fedpareto.federation.npz import read_arrays
from fedpareto.federation.tables import is_file_of_table, read_table

PARTS = ("x_train", "y_train")
TESTS = ("x_test", "y_test")
SHOWN = 5  # ranges in a message


@dataclass(frozen=True)
class Site:
    """Records to train on and, if there are any, others to test on."""

    x_train: NDArray[Any]  # [n, ...]
    y_train: NDArray[Any]  # [n]
    x_test: NDArray[Any] | None = None
    y_test: NDArray[Any] | None = None


def site_of_file(path: str | Path, label: str = "", test_share: float = 0.2) -> Site:
    """Return the records of an .npz file with x_train and y_train, or of a .csv or .parquet table.

    Of a table, label is the column to predict. All sites must have the same columns, and of words
    the same words: code them as numbers where a site may lack one.
    """
    where = Path(path).expanduser()
    if not where.is_file():
        raise DataError(f"{where}: must be a file with this site's records, found none.")
    if is_file_of_table(where.name):
        arrays = read_table(where, label, "", test_share)
    else:
        arrays = read(lambda file: read_arrays(file, PARTS, TESTS), where)
    return Site(*(arrays.get(name) for name in (*PARTS, *TESTS)))  # type: ignore[arg-type]


def dataset_of(site: Site, agreed: Deployment) -> Dataset:
    """Return a site's records as training takes them; refuse what does not fit the model."""
    x, y = np.asarray(site.x_train), np.asarray(site.y_train)
    _check(x, y, "train", agreed)
    if not len(y):
        raise DataError("load_site: must return at least one training record, found none.")
    _check_priced(len(y), agreed)
    none = x[:0], y[:0]
    test_x, test_y = none
    if site.x_test is not None and site.y_test is not None:
        test_x, test_y = np.asarray(site.x_test), np.asarray(site.y_test)
        _check(test_x, test_y, "test", agreed)
    return _made(x, y, test_x, test_y, agreed)


def nothing(agreed: Deployment) -> Dataset:
    """Return the records of a server: none."""
    x = np.zeros((0, *agreed.shape))
    return _made(x, np.zeros(0), x, np.zeros(0), agreed)


def _made(
    x: NDArray[Any], y: NDArray[Any], test_x: NDArray[Any], test_y: NDArray[Any], agreed: Deployment
) -> Dataset:
    kind = np.float32 if agreed.classes == 1 else np.int64
    inputs = [np.ascontiguousarray(part.astype(agreed.dtype)) for part in (x, test_x)]
    labels = [part.astype(kind) for part in (y, test_y)]
    return Dataset(inputs[0], labels[0], inputs[1], labels[1], agreed.scale, labels=agreed.classes)


def _check_priced(records: int, agreed: Deployment) -> None:
    """Refuse a number of records with which the ε of a record is not the one stated."""
    priced = agreed.terms.records
    if priced is None or not agreed.sizes or priced.covers(records):
        return
    raise DataError(
        f"load_site: must return {_covered(priced)} training records, for which ε was priced, found"
        f" {records}: each would be used more often than was priced, so its ε could be larger than "
        "stated. Return that many, or export a study with a client that holds as many as this site."
    )


def _covered(priced: Records) -> str:
    """Say how many records a site may have: as few as priced, in no more steps."""
    fewest = sorted(uses.size for uses in priced.uses())
    if np.any(priced.steps):
        return f"at least {fewest[0]}"
    batch = int(np.max(priced.batch))
    said = [f"{size} to {-(-size // batch) * batch}" for size in fewest]
    return " or ".join(said[:SHOWN] + ["…"] * (len(said) > SHOWN))


def _check(x: NDArray[Any], y: NDArray[Any], part: str, agreed: Deployment) -> None:
    """Refuse inputs of another shape or kind, and labels that the model does not know."""
    if tuple(x.shape[1:]) != agreed.shape or len(x) != len(y):
        raise DataError(
            f"load_site: x_{part} must be of shape {[len(y), *agreed.shape]}, one input for each "
            f"label, found {list(x.shape)}. Bring them to the shape that was agreed."
        )
    if (x.dtype == np.uint8) != (agreed.dtype == "uint8"):
        raise DataError(
            f"load_site: x_{part} must be {agreed.dtype} as was agreed, found {x.dtype}: they "
            "would be scaled otherwise."
        )
    if x.dtype.kind not in "fiu" or not np.isfinite(x).all():
        raise DataError(f"load_site: x_{part} must be finite numbers, found others.")
    if agreed.classes > 1 and len(y) and (y.min() < 0 or y.max() >= agreed.classes):
        raise DataError(
            f"load_site: y_{part} must be classes from 0 to {agreed.classes - 1}, found "
            f"{y.min()} to {y.max()}."
        )
