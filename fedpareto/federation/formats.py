"""Read data files: .npz, MNIST's idx files, CIFAR-10's archive and JPEGs, and users' functions."""

from __future__ import annotations

import gzip
import io
import math
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import (
    DataError,
    FedparetoError,
    MissingPackage,
    SettingError,
    guarded,
    told,
)
from fedpareto.federation.bounds import check_room
from fedpareto.federation.cifar import TEST, TRAIN, read_batches
from fedpareto.federation.npz import read_arrays
from fedpareto.settings import function_of

Arrays = dict[str, NDArray[Any]]
NAMES = ("x_train", "y_train", "x_test", "y_test")
SITES = ("site_train", "site_test")  # the site of each record, from 0, where data name sites
NAMES_OF_INPUTS = "names"  # of the columns of a table
MOST_CLASSES = 100_000


WORDS = 300  # letters of a library's error: it may repeat what the file holds


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
            f"{str(error)[:WORDS]}. Fetch it again."
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
    if set(SITES) <= set(arrays):
        _check_sites(arrays, where)
    return arrays


def _check_sites(arrays: Arrays, where: str) -> None:
    """Refuse sites that are not counted from 0, or that have no training record."""
    for name, labels in zip(SITES, ("y_train", "y_test"), strict=True):
        sites = arrays[name] = arrays[name].reshape(-1)
        if sites.dtype.kind not in "iu" or len(sites) != len(arrays[labels]) or sites.min() < 0:
            raise DataError(
                f"{where}: {name} must hold the site of each of {len(arrays[labels]):,} records, "
                f"whole numbers from 0, found {sites.dtype} of shape {sites.shape}."
            )
    trained = np.unique(arrays["site_train"])
    if len(trained) != trained[-1] + 1 or arrays["site_test"].max() > trained[-1]:
        raise DataError(
            f"{where}: every site must have training records, found sites up to "
            f"{max(int(arrays[name].max()) for name in SITES)} and {len(trained)} that have some."
        )


def _named(found: Any, where: str) -> Arrays:
    """Return the four arrays by name, from a mapping that has these names or a sequence of four."""
    if isinstance(found, tuple | list) and len(found) == 4:
        found = dict(zip(NAMES, found, strict=True))
    names: Any = type(found).__name__
    if isinstance(found, Mapping):
        if set(NAMES) <= set(found):
            wanted = [*NAMES, *(SITES if set(SITES) <= set(found) else ())]
            held = {name: np.asarray(found[name]) for name in wanted}
            if NAMES_OF_INPUTS in found:
                held[NAMES_OF_INPUTS] = np.asarray(found[NAMES_OF_INPUTS])
            return held
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
    if x.size == 0:
        raise DataError(f"{where}: x_{part} must have inputs with numbers, found shape {x.shape}.")
    if y.dtype.kind == "f" and not _moderate(y):
        raise DataError(
            f"{where}: y_{part} must hold numbers to predict that are finite and below 1e38, found "
            "others."
        )
    if y.dtype.kind != "f" and (y.min() < 0 or y.max() >= MOST_CLASSES):
        raise DataError(
            f"{where}: y_{part} must hold class numbers from 0 to {MOST_CLASSES - 1:,}, found "
            f"{y.min()} to {y.max()}."
        )
    if x.dtype != np.uint8 and not (x.dtype.kind == "f" and _moderate(x)):
        raise DataError(
            f"{where}: x_{part} must be uint8, or floats that are finite and below 1e38, found "
            f"{x.dtype} of another kind."
        )


def _moderate(x: NDArray[Any]) -> bool:
    """Say whether all floats are finite, also in single precision."""
    # a comparison with nan is false
    return float(x.min()) > -1e38 and float(x.max()) < 1e38


def read_npz(path: Path) -> Arrays:
    """Read the arrays x_train, y_train, x_test, y_test of an .npz file."""
    return checked(read_arrays(path, NAMES, SITES), str(path))


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
    """Return the array of one idx file: two zeros, the type, the rank, the shape, the bytes."""
    zipped = folder / f"{name}.gz"
    path = zipped if zipped.exists() else folder / name
    with gzip.open(path) if path == zipped else path.open("rb") as file:
        start = file.read(4)
        if start[:3] != b"\0\0\x08" or start[3:] not in (b"\1", b"\2", b"\3", b"\4"):
            raise DataError(
                f"{path}: must be an idx file of bytes, found one that begins {start!r}."
            )
        shape = struct.unpack(f">{start[3]}I", file.read(4 * start[3]))
        size = math.prod(shape)
        check_room(path, size)
        content = file.read(size + 1)
    if len(content) != size:
        found = "more" if len(content) > size else f"{len(content):,}"
        raise DataError(
            f"{path}: must be an idx file of {size:,} bytes, as its shape {shape} says, found "
            f"{found}. Fetch it again."
        )
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def read_cifar_archive(path: Path) -> Arrays:
    """Read CIFAR-10 from cifar-10-python.tar.gz."""
    batches = read_batches(path)
    train = [batches[name] for name in TRAIN]
    x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return checked((x, y, *batches[TEST]), str(path))


def read_jpegs(train: Path, test: Path) -> Arrays:
    """Read images kept as JPEGs: each file holds them in one long array, with offsets."""
    return checked((*_jpegs(train), *_jpegs(test)), str(train.parent))


def _jpegs(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return the images [n,3,H,W] and labels [n] of one file of JPEGs."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackage("pillow", "images", "reading JPEG images") from None
    file = read_arrays(path, ("jpeg", "offsets", "labels"))
    raw, offsets = file["jpeg"], file["offsets"]
    _check_offsets(raw, offsets, path)
    images: NDArray[np.uint8] | None = None
    for i, (start, end) in enumerate(pairwise(offsets.tolist())):
        with Image.open(io.BytesIO(raw[start:end].tobytes()), formats=("JPEG",)) as image:
            width, height = image.size
            if images is None:
                check_room(path, (len(offsets) - 1) * 3 * height * width)
                images = np.empty((len(offsets) - 1, height, width, 3), np.uint8)
            if images.shape[1:3] != (height, width):
                raise DataError(
                    f"{path}: must hold images of one size, found {images.shape[2]} × "
                    f"{images.shape[1]} and {width} × {height}."
                )
            images[i] = np.asarray(image.convert("RGB"))
    assert images is not None
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), file["labels"]


def _check_offsets(raw: NDArray[Any], offsets: NDArray[Any], path: Path) -> None:
    """Refuse offsets that do not cut a row of bytes into at least one file after another."""
    rows = raw.dtype == np.uint8 and raw.ndim == 1 and offsets.ndim == 1 and len(offsets) > 1
    whole = rows and offsets.dtype.kind in "iu" and offsets.min() >= 0
    if not whole or offsets[-1] > len(raw) or (offsets[1:] <= offsets[:-1]).any():
        raise DataError(
            f"{path}: must hold a row of bytes jpeg and growing offsets into it, one more than "
            f"images, found {raw.dtype} {raw.shape} and {offsets.dtype} {offsets.shape}."
        )


def call_function(name: str) -> Arrays:
    """Return the four arrays that the user's function "package.module:function" returns."""
    try:
        function = function_of(name)
    except SettingError as error:
        raise DataError(f"data.name: {error}") from error
    try:
        with guarded():
            found = function()
    except Exception as error:
        raise DataError(
            f"data.name: {name!r} must be a function that returns the arrays {', '.join(NAMES)}, "
            f"found {told(error)}."
        ) from error
    try:
        return checked(found, name)
    except (TypeError, ValueError) as error:  # numpy cannot make an array of it
        raise DataError(
            f"data.name: {name!r} must return the arrays {', '.join(NAMES)}, found {told(error)}."
        ) from error
