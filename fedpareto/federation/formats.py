"""Read data files: .npz, MNIST's idx files, CIFAR-10's archive and JPEGs, and users' functions."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, FedparetoError, MissingPackage, SettingError
from fedpareto.settings import imported

Arrays = dict[str, NDArray[Any]]
NAMES = ("x_train", "y_train", "x_test", "y_test")
MOST_CLASSES = 100_000


def read(reader: Callable[..., Arrays], *paths: Path) -> Arrays:
    """Read a data set's files; if that fails, raise a DataError that names them."""
    try:
        return reader(*paths)
    except FedparetoError:
        raise
    except Exception as error:
        names = " and ".join(map(str, paths))
        raise DataError(
            f"{names}: must be whole and of the stated format, found {type(error).__name__}: "
            f"{error}. Fetch it again."
        ) from error


def checked(found: Any, where: str) -> Arrays:
    """Return the four arrays of a data set; raise a DataError if one is missing or does not fit."""
    arrays = _named(found, where)
    for part in ("train", "test"):
        arrays[f"y_{part}"] = arrays[f"y_{part}"].reshape(-1)
        _check_part(part, arrays[f"x_{part}"], arrays[f"y_{part}"], where)
    if (arrays["x_train"].dtype == np.uint8) != (arrays["x_test"].dtype == np.uint8):
        raise DataError(
            f"{where}: x_train and x_test must both be uint8 or both floats, found "
            f"{arrays['x_train'].dtype} and {arrays['x_test'].dtype}."
        )
    if (arrays["y_train"].dtype.kind == "f") != (arrays["y_test"].dtype.kind == "f"):
        raise DataError(
            f"{where}: y_train and y_test must both be class numbers or both floats to predict, "
            f"found {arrays['y_train'].dtype} and {arrays['y_test'].dtype}."
        )
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        raise DataError(
            f"{where}: x_train and x_test must have inputs of one shape, found "
            f"{arrays['x_train'].shape[1:]} and {arrays['x_test'].shape[1:]}."
        )
    return arrays


def _named(found: Any, where: str) -> Arrays:
    """Return the four arrays by name, from a mapping that has these names or a sequence of four."""
    if isinstance(found, tuple | list) and len(found) == 4:
        found = dict(zip(NAMES, found, strict=True))
    names: Any = type(found).__name__
    if isinstance(found, Mapping):
        if set(NAMES) <= set(found):
            return {name: np.asarray(found[name]) for name in NAMES}
        names = sorted(found)
    raise DataError(f"{where}: must hold the arrays {', '.join(NAMES)}, found {names}.")


def _check_part(part: str, x: NDArray[Any], y: NDArray[Any], where: str) -> None:
    """Refuse inputs x and labels y, of training or test data, that cannot be trained on."""
    if x.ndim < 2 or y.dtype.kind not in "iuf":
        raise DataError(
            f"{where}: x_{part} must be [n, ...] and y_{part} class numbers, or floats to predict, "
            f"found shape {x.shape} and {y.dtype}."
        )
    if len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"{where}: x_{part} and y_{part} must have the same length, above 0, found "
            f"{len(x)} and {len(y)}."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{where}: y_{part} must hold finite numbers to predict, found others.")
    if y.dtype.kind != "f" and (y.min() < 0 or y.max() >= MOST_CLASSES):
        raise DataError(
            f"{where}: y_{part} must hold class numbers from 0 to {MOST_CLASSES - 1:,}, found "
            f"{y.min()} to {y.max()}."
        )
    if x.dtype == np.uint8:
        return
    # a comparison with nan is false
    if not np.issubdtype(x.dtype, np.floating) or not float(np.abs(x).max()) < 1e38:
        raise DataError(
            f"{where}: x_{part} must be uint8, or floats that are finite and below 1e38, found "
            f"{x.dtype} of another kind."
        )


def read_npz(path: Path) -> Arrays:
    """Read the arrays x_train, y_train, x_test, y_test of an .npz file."""
    return checked(_npz(path), str(path))


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def read_idx(folder: Path) -> Arrays:
    """Read the four idx files of MNIST and its kin, gzipped or not."""
    files = {
        "x_train": "train-images-idx3-ubyte",
        "y_train": "train-labels-idx1-ubyte",
        "x_test": "t10k-images-idx3-ubyte",
        "y_test": "t10k-labels-idx1-ubyte",
    }
    return checked({name: _idx(folder, file) for name, file in files.items()}, str(folder))


def _idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Return the array of one idx file."""
    path = folder / f"{name}.gz"
    if path.exists():
        raw = gzip.decompress(path.read_bytes())
    else:
        path = folder / name
        raw = path.read_bytes()
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", rank, 4).astype(int)
    if raw[:3] != b"\0\0\x08" or len(raw) != 4 + 4 * rank + int(np.prod(shape)):
        raise DataError(
            f"{path}: must be an idx file of bytes, found {len(raw)} bytes that begin with "
            f"{raw[:4]!r}."
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape).copy()


def read_cifar_archive(path: Path) -> Arrays:
    """Read CIFAR-10 from cifar-10-python.tar.gz."""
    batches = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None and "_batch" in member.name:
                content = io.BytesIO(file.read())
                batches[Path(member.name).name] = _Plain(content, encoding="bytes").load()
    train = [batches[f"data_batch_{i}"] for i in range(1, 6)]
    test = [batches["test_batch"]]
    arrays: Arrays = {}
    for part, found in (("train", train), ("test", test)):
        arrays[f"x_{part}"] = np.concatenate([b[b"data"] for b in found]).reshape(-1, 3, 32, 32)
        arrays[f"y_{part}"] = np.concatenate([b[b"labels"] for b in found]).astype(np.int64)
    return checked(arrays, str(path))


class _Plain(pickle.Unpickler):
    """An unpickler that knows arrays and nothing else: a data file must not run code."""

    KNOWN = ("_reconstruct", "ndarray", "dtype", "scalar")

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self.KNOWN:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"code in place of arrays: {module}.{name}")


def read_jpegs(train: Path, test: Path) -> Arrays:
    """Read images kept as JPEGs: each file holds them in one long array, with offsets."""
    return checked((*_jpegs(train), *_jpegs(test)), str(train.parent))


def _jpegs(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return the images [n,3,H,W] and labels [n] of one file of JPEGs."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackage("pillow", "images", "reading JPEG images") from None
    file = _npz(path)
    if not {"jpeg", "offsets", "labels"} <= set(file):
        raise DataError(
            f"{path}: must hold the arrays jpeg, offsets, labels, found {sorted(file)}."
        )
    raw = file["jpeg"].tobytes()
    offsets = file["offsets"]
    files = [io.BytesIO(raw[start:end]) for start, end in pairwise(offsets)]
    images = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    return np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2)), file["labels"]


def call_function(name: str) -> Arrays:
    """Return the four arrays that the user's function "package.module:function" returns."""
    try:
        function = imported(name)
    except SettingError as error:
        raise DataError(f"data.name: {error}") from error
    try:
        found = function()
    except Exception as error:
        raise DataError(
            f"data.name: {name!r} must be a function that returns the arrays {', '.join(NAMES)}, "
            f"found {type(error).__name__}: {error}."
        ) from error
    try:
        return checked(found, name)
    except (TypeError, ValueError) as error:  # numpy cannot make an array of it
        raise DataError(
            f"data.name: {name!r} must return the arrays {', '.join(NAMES)}, found "
            f"{type(error).__name__}: {error}."
        ) from error
