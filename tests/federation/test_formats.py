"""Data files: each format gives back what was put in, and what does not fit is refused in words that name the file."""

from __future__ import annotations

import gc
import gzip
import io
import os
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image

from fedpareto.errors import DataError, FedparetoError, MissingPackage
from fedpareto.federation.formats import (
    NAMES,
    Arrays,
    call_function,
    checked,
    read,
    read_cifar_archive,
    read_idx,
    read_jpegs,
    read_npz,
)

X, Y = np.arange(24, dtype=np.uint8).reshape(4, 2, 3), np.array([0, 1, 2, 1])
WHOLE: dict[str, Any] = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2]}
IMAGES = "train-images-idx3-ubyte"


def same(found: dict[str, np.ndarray], expected: dict[str, Any]) -> bool:
    return list(found) == list(NAMES) and all(np.array_equal(found[name], expected[name]) for name in NAMES)


def message_of(call: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as refused:
        call()
    return str(refused.value)


def damage(reader: Callable[..., Arrays], *paths: Path) -> str:
    """Read damaged files, whose refusal must name them and say what to do, and return what was found."""
    message = message_of(lambda: read(reader, *paths))
    before, after = f"{' and '.join(map(str, paths))}: must be whole and of the stated format, found ", ". Fetch it again."
    assert message.startswith(before)
    assert message.endswith(after)
    return message.removeprefix(before).removesuffix(after)


# what every reader may leave to its caller


def raises(error: BaseException) -> Callable[..., Arrays]:
    def reader(*_: Path) -> Arrays:
        raise error

    return reader


def test_what_a_reader_gives_is_handed_on() -> None:
    asked = []
    assert read(lambda *paths: asked.append(paths) or WHOLE, Path("a"), Path("b")) is WHOLE
    assert asked == [(Path("a"), Path("b"))]


@pytest.mark.parametrize("error", [ValueError("no"), OSError(5, "no"), EOFError("no"), struct.error("no"), KeyError("no"),
                                   MemoryError("no"), RecursionError("no"), zlib.error("no"), Warning("no")], ids=repr)
def test_whatever_else_a_reader_raises_is_a_fault_of_the_files(error: Exception) -> None:
    assert damage(raises(error), Path("a"), Path("b/c")) == f"{type(error).__name__}: {error}"
    with pytest.raises(DataError) as refused:
        read(raises(error), Path("a"))
    assert refused.value.__cause__ is error


@pytest.mark.parametrize("error", [DataError("a: no."), MissingPackage("pillow", "images", "reading")], ids=["DataError", "MissingPackage"])
def test_what_a_reader_raises_on_purpose_is_left_as_it_is(error: FedparetoError) -> None:
    with pytest.raises(FedparetoError) as refused:
        read(raises(error), Path("a"))
    assert refused.value is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_reader_can_be_interrupted(error: BaseException) -> None:
    with pytest.raises(type(error)):
        read(raises(error), Path("a"))


# what every format must hold


def test_arrays_come_by_name_or_in_their_order() -> None:
    assert same(checked(WHOLE, "here"), WHOLE)
    assert same(checked(tuple(WHOLE.values()), "here"), WHOLE)
    assert same(checked([array.tolist() if array.ndim == 1 else array for array in WHOLE.values()], "here"), WHOLE)
    assert same(checked(WHOLE | {"more": 1}, "here"), WHOLE)


def test_labels_in_a_column_become_a_row() -> None:
    assert same(checked(WHOLE | {"y_train": Y[:, None]}, "here"), WHOLE)


def labels(part: str) -> str:
    return f"x_{part} must be [n, ...] and y_{part} class numbers, or floats to predict, found shape"


def inputs(part: str) -> str:
    return f"x_{part} must be uint8, or floats that are finite and below 1e38, found"


UNFIT = {
    "one missing": ({name: WHOLE[name] for name in NAMES[:3]},
                    "must hold the arrays x_train, y_train, x_test, y_test, found ['x_test', 'x_train', 'y_train']."),
    "others": ({"images": X, "labels": Y}, "must hold the arrays x_train, y_train, x_test, y_test, found ['images', 'labels']."),
    "three of them": ((X, Y, X), "must hold the arrays x_train, y_train, x_test, y_test, found tuple."),
    "nothing": (None, "must hold the arrays x_train, y_train, x_test, y_test, found NoneType."),
    "one array": (X, "must hold the arrays x_train, y_train, x_test, y_test, found ndarray."),
    "a label too few": (WHOLE | {"y_train": Y[:3]}, "x_train and y_train must have the same length, above 0, found 4 and 3."),
    "a label too many": (WHOLE | {"y_test": Y}, "x_test and y_test must have the same length, above 0, found 2 and 4."),
    "one-hot labels": (WHOLE | {"y_train": np.eye(4, 3, dtype=int)},
                       "x_train and y_train must have the same length, above 0, found 4 and 12."),
    "no training images": (WHOLE | {"x_train": X[:0], "y_train": Y[:0]},
                           "x_train and y_train must have the same length, above 0, found 0 and 0."),
    "no test images": (WHOLE | {"x_test": X[:0], "y_test": Y[:0]},
                       "x_test and y_test must have the same length, above 0, found 0 and 0."),
    "numbers to predict that are not finite": (WHOLE | {"y_train": Y * np.nan, "y_test": Y[:2] * 1.0},
                                               "y_train must hold finite numbers to predict, found others."),
    "labels of two kinds": (WHOLE | {"y_test": Y[:2] * 1.0},
                            "y_train and y_test must both be class numbers or both floats to predict, found int64 and float64."),
    "labels that are true or false": (WHOLE | {"y_test": Y[:2] > 0}, f"{labels('test')} (2, 2, 3) and bool."),
    "labels that are texts": (WHOLE | {"y_train": np.array(["cat", "dog", "eel", "dog"])}, f"{labels('train')} (4, 2, 3) and <U3."),
    "labels that are objects": (WHOLE | {"y_train": Y.astype(object)}, f"{labels('train')} (4, 2, 3) and object."),
    "no labels at all": (WHOLE | {"y_train": None}, f"{labels('train')} (4, 2, 3) and object."),
    "a number for images": (WHOLE | {"x_train": np.uint8(3)}, f"{labels('train')} () and int64."),
    "a row for images": (WHOLE | {"x_test": X[0, 0]}, f"{labels('test')} (3,) and int64."),
    "negative labels": (WHOLE | {"y_train": Y - 1}, "y_train must hold class numbers from 0 to 99,999, found -1 to 1."),
    "large labels": (WHOLE | {"y_test": np.array([3, 100_000])}, "y_test must hold class numbers from 0 to 99,999, found 3 to 100000."),
    "the largest labels": (WHOLE | {"y_train": np.full(4, 2**64 - 1, np.uint64)},
                           f"y_train must hold class numbers from 0 to 99,999, found {2**64 - 1} to {2**64 - 1}."),
    "whole numbers": (WHOLE | {"x_train": X.astype(np.int64)}, f"{inputs('train')} int64 of another kind."),
    "true or false": (WHOLE | {"x_train": X > 3}, f"{inputs('train')} bool of another kind."),
    "complex numbers": (WHOLE | {"x_test": X[:2] * 1j}, f"{inputs('test')} complex128 of another kind."),
    "texts": (WHOLE | {"x_train": X.astype(str)}, f"{inputs('train')} <U3 of another kind."),
    "objects": (WHOLE | {"x_train": X.astype(object)}, f"{inputs('train')} object of another kind."),
    "bytes for training, floats for testing": (WHOLE | {"x_test": X[:2] / 255},
                                               "x_train and x_test must both be uint8 or both floats, found uint8 and float64."),
    "floats for training, bytes for testing": (WHOLE | {"x_train": np.float32(X)},
                                               "x_train and x_test must both be uint8 or both floats, found float32 and uint8."),
    "other shapes": (WHOLE | {"x_test": X[:2, :, :2]}, "x_train and x_test must have inputs of one shape, found (2, 3) and (2, 2)."),
    "other ranks": (WHOLE | {"x_test": X[:2, 0]}, "x_train and x_test must have inputs of one shape, found (2, 3) and (3,)."),
}


@pytest.mark.parametrize("name", UNFIT)
def test_arrays_that_do_not_fit_are_refused_by_name(name: str) -> None:
    found, message = UNFIT[name]
    assert message_of(lambda: checked(found, "here")) == f"here: {message}"


FLOATS: dict[str, Any] = WHOLE | {"x_train": X / 255, "x_test": X[:2] / 255}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # of float16; a test in test_data asks for none
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("part", ["train", "test"])
def test_a_float_that_is_not_finite_is_refused(part: str, kind: type, value: float) -> None:
    x = np.zeros((4 if part == "train" else 2, 2, 3), kind)
    x[1, 0, 2] = value
    assert message_of(lambda: checked(FLOATS | {f"x_{part}": x}, "here")) == f"here: {inputs(part)} {np.dtype(kind)} of another kind."


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("part", ["train", "test"])
def test_floats_below_1e38_either_way_are_taken_and_no_larger_ones(part: str, kind: type) -> None:
    x = np.zeros((4 if part == "train" else 2, 2, 3), kind)
    first = kind(1e38) if float(kind(1e38)) >= 1e38 else np.nextafter(kind(1e38), kind(np.inf))  # 1e38 is no number of single precision
    for value in (np.nextafter(first, kind(0)), -np.nextafter(first, kind(0)), kind(1e-45)):
        x[1, 0, 2] = value
        assert checked(FLOATS | {f"x_{part}": x}, "here")[f"x_{part}"][1, 0, 2] == value
    for value in (first, -first, np.finfo(kind).max, np.finfo(kind).min):
        x[1, 0, 2] = value
        assert message_of(lambda: checked(FLOATS | {f"x_{part}": x}, "here")) == f"here: {inputs(part)} {np.dtype(kind)} of another kind."


def test_the_largest_class_number_is_taken() -> None:
    assert checked(WHOLE | {"y_test": np.array([0, 99_999])}, "here")["y_test"].tolist() == [0, 99_999]


@pytest.mark.parametrize("train", [np.float32, np.float64])
@pytest.mark.parametrize("test", [np.float32, np.float64])
def test_floats_for_training_and_testing_need_not_be_as_precise_as_one_another(train: type, test: type) -> None:
    found = checked(WHOLE | {"x_train": X.astype(train), "x_test": X[:2].astype(test)}, "here")
    assert (found["x_train"].dtype, found["x_test"].dtype) == (train, test)


# .npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file_is_read(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "own.npz", **WHOLE, more=np.zeros(3))
    found = read_npz(tmp_path / "own.npz")
    assert same(found, WHOLE)
    assert found["x_train"].dtype == np.uint8


@given(arrays(np.uint8, array_shapes(min_dims=2, max_dims=5, max_side=4)))
def test_images_of_any_shape_come_back_from_an_npz_file(tmp_path_factory: pytest.TempPathFactory, x: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "any_shape.npz"
    np.savez(path, x_train=x, y_train=np.zeros(len(x), int), x_test=x[:1], y_test=[0])
    assert np.array_equal(read_npz(path)["x_train"], x)


def npz_of(**held: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **held)
    return file.getvalue()


def spoiled(content: bytes, places: range) -> bytes:
    return bytes(byte ^ 0x55 if i in places else byte for i, byte in enumerate(content))


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def compressed() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x_train=np.random.default_rng(0).integers(0, 99, (400, 20), np.uint8))
    return file.getvalue()


NOT_NPZ = {
    "a text": (b"x_train,y_train\n1,2\n", "ValueError: This file contains pickled"),  # numpy takes all it does not know for that
    "nothing": (b"", "EOFError: No data left in file"),
    "a file cut short": (npz_of(**WHOLE)[:1000], "BadZipFile: File is not a zip file"),
    "a file with a wrong byte": (spoiled(npz_of(x_train=np.zeros(1000, np.uint8)), range(500, 501)),
                                 "BadZipFile: Bad CRC-32 for file 'x_train.npy'"),
    "objects": (npz_of(x_train=np.array([None, {}], dtype=object)), "ValueError: Object arrays cannot be loaded when allow_pickle=False"),
    "a single array": (npy(), "TypeError: 'numpy.ndarray' object does not support the context manager protocol"),
    "wrong bytes inside": (spoiled(compressed(), range(100, 400)), "error: Error -3 while decompressing data: "),  # zlib's
}


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # numpy leaves a zip file that is cut short open
@pytest.mark.parametrize("name", NOT_NPZ)
def test_what_is_no_npz_file_of_plain_arrays_is_refused(tmp_path: Path, name: str) -> None:
    content, reason = NOT_NPZ[name]
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    found = damage(read_npz, path)
    gc.collect()
    assert found.startswith(reason)


def test_a_folder_in_place_of_an_npz_file_is_refused(tmp_path: Path) -> None:
    assert damage(read_npz, tmp_path) == f"IsADirectoryError: [Errno 21] Is a directory: '{tmp_path}'"


def test_an_npz_file_that_went_away_is_refused(tmp_path: Path) -> None:
    assert damage(read_npz, tmp_path / "own.npz") == f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'own.npz'}'"


def test_a_zip_file_of_other_things_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")
    assert message_of(lambda: read(read_npz, path)) == f"{path}: must hold the arrays {', '.join(NAMES)}, found ['readme.txt']."


def test_arrays_of_an_npz_file_that_do_not_fit_are_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(npz_of(**WHOLE | {"y_train": Y[:3]}))
    assert message_of(lambda: read(read_npz, path)) == (
        f"{path}: x_train and y_train must have the same length, above 0, found 4 and 3.")


class Bomb:
    """What leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_code_inside_an_npz_file_is_not_run(tmp_path: Path) -> None:
    path, mark = tmp_path / "own.npz", tmp_path / "mark"
    path.write_bytes(npz_of(**WHOLE | {"x_train": np.array([Bomb(mark)], dtype=object)}))
    assert damage(read_npz, path) == "ValueError: Object arrays cannot be loaded when allow_pickle=False"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    assert damage(read_npz, path).startswith("ValueError: This file contains pickled (object) data.")
    assert not mark.exists()


# idx


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_gzipped_or_not(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], zipped: bool) -> None:
    written = idx_files(tmp_path, zipped)
    found = read_idx(tmp_path)
    assert same(found, written)
    assert all(array.flags.writeable for array in found.values())


def test_a_gzipped_idx_file_comes_before_a_plain_one(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    idx_files(tmp_path, zipped=False, train=30)
    written = idx_files(tmp_path, zipped=True, train=40)
    assert same(read_idx(tmp_path), written)


def idx_of(kind: int, *shape: int, content: bytes = b"") -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape) + content


NOT_IDX = {
    "a byte too few": (idx_of(8, 4, 2, 3, content=X.tobytes()[:-1]), "39 bytes that begin with b'\\x00\\x00\\x08\\x03'."),
    "a byte too many": (idx_of(8, 4, 2, 3, content=X.tobytes() + b"!"), "41 bytes that begin with b'\\x00\\x00\\x08\\x03'."),
    "no content": (idx_of(8, 4, 2, 3), "16 bytes that begin with b'\\x00\\x00\\x08\\x03'."),
    "floats": (idx_of(13, 2, content=bytes(8)), "16 bytes that begin with b'\\x00\\x00\\r\\x01'."),
    "another beginning": (b"PK\x03\x00" + bytes(4), "8 bytes that begin with b'PK\\x03\\x00'."),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", NOT_IDX)
def test_what_is_no_idx_file_is_refused(
        tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], name: str, zipped: bool) -> None:
    content, reason = NOT_IDX[name]
    idx_files(tmp_path, zipped)
    path = tmp_path / (f"{IMAGES}.gz" if zipped else IMAGES)
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert message_of(lambda: read(read_idx, tmp_path)) == f"{path}: must be an idx file of bytes, found {reason}"


def test_idx_files_that_do_not_fit_together_are_refused(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    idx_files(tmp_path, zipped=False)
    (tmp_path / IMAGES).write_bytes(idx_of(8, 3, 5, 4, content=bytes(60)))
    assert message_of(lambda: read(read_idx, tmp_path)) == (
        f"{tmp_path}: x_train and y_train must have the same length, above 0, found 3 and 40.")


DAMAGED_IDX = {
    "nothing": (IMAGES, b"", "IndexError: index out of range"),
    "two bytes": (IMAGES, b"\0\0", "IndexError: index out of range"),
    "a shape cut short": (IMAGES, idx_of(8, 4, 2, 3)[:10], "ValueError: buffer is smaller than requested size"),
    "a shape beyond all memory": (IMAGES, idx_of(8, 2**31, 2**31, 2**31), "ValueError: cannot reshape array of size 0 into shape "),
    "a zip cut short": (f"{IMAGES}.gz", gzip.compress(bytes(1000))[:-10], "EOFError: Compressed file ended before the end-of-stream"),
    "a zip with wrong bytes": (f"{IMAGES}.gz", spoiled(gzip.compress(bytes(range(256)) * 9), range(15, 25)), ""),
    "a zip with a wrong sum": (f"{IMAGES}.gz", spoiled(zipped := gzip.compress(idx_of(8, 1, content=b"!")),
                                                       range(len(zipped) - 8, len(zipped) - 4)), "BadGzipFile: CRC check failed"),
    "no zip at all": (f"{IMAGES}.gz", b"hello", "BadGzipFile: Not a gzipped file (b'he')"),
}


@pytest.mark.parametrize("name", DAMAGED_IDX)
def test_a_damaged_idx_file_is_refused(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], name: str) -> None:
    file, content, found = DAMAGED_IDX[name]
    idx_files(tmp_path, zipped=False)
    (tmp_path / file).write_bytes(content)
    assert damage(read_idx, tmp_path).startswith(found)


# CIFAR-10's archive: pickles of Python 2, as they are distributed


def text(content: bytes) -> bytes:
    return b"U" + bytes([len(content)]) + content if len(content) < 256 else b"T" + struct.pack("<I", len(content)) + content


def whole(number: int) -> bytes:
    return b"K" + bytes([number]) if 0 <= number < 256 else b"J" + struct.pack("<i", number)


def listed(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def array(content: np.ndarray) -> bytes:
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + whole(0) + b"\x85" + text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + text(b"u1") + whole(0) + whole(1) + b"\x87R(" + whole(3) + text(b"|") + b"NNN"
    kind += whole(-1) + whole(-1) + whole(0) + b"tb"
    shape = b"(" + b"".join(map(whole, content.shape)) + b"t"
    return made + b"(" + whole(1) + shape + kind + b"\x89" + text(content.tobytes()) + b"tb"


def batch(x: np.ndarray, y: list[int], label: bytes = b"training batch 1 of 5") -> bytes:
    """Return a batch as Python 2 pickled it: a table of texts, with an array and lists."""
    held = {b"batch_label": text(label), b"labels": listed([whole(c) for c in y]), b"data": array(x),
            b"filenames": listed([text(b"leptodactylus_pentadactylus_s_000004.png") for _ in y])}
    return b"\x80\x02}(" + b"".join(text(key) + value for key, value in held.items()) + b"u."


BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 2, 3072), np.uint8)
CIFAR = {name: batch(PIXELS[i], [i, 9 - i]) for i, name in enumerate(BATCHES)}
META = pickle.dumps({b"label_names": [b"airplane", b"automobile"], b"num_cases_per_batch": 10000}, 2)


def archive(path: Path, batches: dict[str, bytes]) -> Path:
    """Write an archive laid out like cifar-10-python.tar.gz."""
    with tarfile.open(path, "w:gz") as file:
        folder = tarfile.TarInfo("cifar-10-batches-py")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
        for name, content in {**batches, "batches.meta": META, "readme.html": b"<html>"}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def test_batches_here_are_pickled_as_python_2_did() -> None:
    found = pickle.loads(CIFAR["data_batch_2"], encoding="bytes")
    assert set(found) == {b"batch_label", b"labels", b"data", b"filenames"}
    assert np.array_equal(found[b"data"], PIXELS[1])
    assert found[b"labels"] == [1, 8]


def test_a_cifar_archive_is_read_in_the_order_of_its_batches(tmp_path: Path) -> None:
    found = read_cifar_archive(archive(tmp_path / "cifar-10-python.tar.gz", dict(reversed(CIFAR.items()))))
    assert (found["x_train"].shape, found["x_test"].shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert found["x_train"].dtype == np.uint8
    assert found["y_train"].tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert found["y_test"].tolist() == [5, 4]
    red, green, blue = PIXELS[1, 1].reshape(3, 32, 32)  # a row of 3072: all red, then all green, then all blue
    assert np.array_equal(found["x_train"][3], np.stack([red, green, blue]))
    assert np.array_equal(found["x_test"].reshape(2, -1), PIXELS[5])


def test_a_cifar_archive_pickled_by_numpy_of_today_is_read_too(tmp_path: Path) -> None:
    now = {name: pickle.dumps({b"data": PIXELS[i], b"labels": [i, 9 - i]}, 4) for i, name in enumerate(BATCHES)}
    found = read_cifar_archive(archive(tmp_path / "cifar-10-python.tar.gz", now))
    assert np.array_equal(found["x_train"].reshape(-1, 3072), PIXELS[:5].reshape(-1, 3072))


EVIL = {
    "a call of the system": (lambda mark: f"cos\nsystem\n(S'mkdir {mark}'\ntR.".encode(), "os.system"),
    "a call of the system, in Python 2's name": (lambda mark: f"cposix\nsystem\n(S'mkdir {mark}'\ntR.".encode(), "posix.system"),
    "Python itself": (lambda mark: f"c__builtin__\neval\n(S'__import__(\"os\").mkdir(\"{mark}\")'\ntR.".encode(), "__builtin__.eval"),
    "numpy's own way to run code": (lambda mark: f"cnumpy.f2py\nrun_main\n(](S'{mark}'\netR.".encode(), "numpy.f2py.run_main"),
    "a name with a dot": (lambda mark: b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "numpy.ndarray.tofile"),
    "an object of today": (lambda mark: pickle.dumps(Bomb(mark), 4), "posix.mkdir"),
    "an object inside an array": (lambda mark: pickle.dumps({b"data": np.array([Bomb(mark)], dtype=object)}, 4), "posix.mkdir"),
}


@pytest.mark.parametrize("name", EVIL)
def test_code_inside_a_cifar_archive_is_refused_and_not_run(tmp_path: Path, name: str) -> None:
    make, found = EVIL[name]
    mark = tmp_path / "mark"
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"data_batch_3": make(mark)})
    assert damage(read_cifar_archive, path) == f"UnpicklingError: code in place of arrays: {found}"
    assert not mark.exists()


@pytest.mark.parametrize("module", ["numpy_of_a_test", "numpycore"])
def test_a_module_that_is_only_named_like_numpy_is_refused_and_not_even_imported(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    mark = f"open({str(tmp_path / 'mark')!r}, 'w').close()"
    (tmp_path / f"{module}.py").write_text(f"{mark}\ndef dtype():\n    {mark}\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"data_batch_3": f"c{module}\ndtype\n)R.".encode()})
    assert damage(read_cifar_archive, path) == f"UnpicklingError: code in place of arrays: {module}.dtype"
    assert not (tmp_path / "mark").exists()
    assert module not in sys.modules


def test_code_elsewhere_in_a_cifar_archive_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    read_cifar_archive(archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"extra.pickle": pickle.dumps(Bomb(mark))}))
    assert not mark.exists()


def test_a_cifar_archive_whose_labels_do_not_fit_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"test_batch": batch(PIXELS[0], [1, 2, 3])})
    assert message_of(lambda: read(read_cifar_archive, path)) == (
        f"{path}: x_test and y_test must have the same length, above 0, found 2 and 3.")


DAMAGED_CIFAR: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no archive": (lambda path: path.write_bytes(b"hello"), "ReadError: file could not be opened successfully"),
    "an archive cut short": (lambda path: path.write_bytes(archive(path, CIFAR).read_bytes()[:2000]),
                             "EOFError: Compressed file ended before the end-of-stream marker was reached"),
    "an archive without batches": (lambda path: archive(path, {}), "KeyError: 'data_batch_1'"),
    "an archive without a test batch": (lambda path: archive(path, {n: b for n, b in CIFAR.items() if n != "test_batch"}),
                                        "KeyError: 'test_batch'"),
    "a batch that is no pickle": (lambda path: archive(path, CIFAR | {"test_batch": b"hello"}), "UnpicklingError: "),
    "an empty batch": (lambda path: archive(path, CIFAR | {"test_batch": b""}), "EOFError: Ran out of input"),
    "a batch that is a list": (lambda path: archive(path, CIFAR | {"test_batch": pickle.dumps([1, 2], 2)}),
                               "TypeError: list indices must be integers or slices, not bytes"),
    "a batch without data": (lambda path: archive(path, CIFAR | {"test_batch": b"\x80\x02}."}), "KeyError: b'data'"),
    "images of another size": (lambda path: archive(path, CIFAR | {"test_batch": batch(PIXELS[0, :, :100], [1, 2])}),
                               "ValueError: cannot reshape array of size 200 into shape (3,32,32)"),
}


@pytest.mark.parametrize("name", DAMAGED_CIFAR)
def test_a_damaged_cifar_archive_is_refused(tmp_path: Path, name: str) -> None:
    write, found = DAMAGED_CIFAR[name]
    path = tmp_path / "cifar-10-python.tar.gz"
    write(path)
    assert damage(read_cifar_archive, path).startswith(found)


def test_a_cifar_archive_with_code_is_refused_by_its_path(tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"data_batch_3": pickle.dumps(Bomb(tmp_path / "mark"))})
    assert message_of(lambda: read(read_cifar_archive, path)).startswith(f"{path}: ")


# JPEG files in a row


def jpeg(pixels: np.ndarray) -> bytes:
    """Return an image [H,W,3] or [H,W] as a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_jpegs(path: Path, files: list[bytes], labels: list[int], **more: Any) -> Path:
    held = {"jpeg": np.frombuffer(b"".join(files), np.uint8), "offsets": np.cumsum([0, *map(len, files)]),
            "labels": np.array(labels, np.uint8)}
    np.savez(path, **held | more)
    return path


SMOOTH = np.stack([np.add.outer(np.arange(16) * a, np.arange(24) * b).astype(np.uint8) for a, b in ((9, 2), (1, 5), (4, 4))], axis=-1)
RED = np.zeros((16, 24, 3), np.uint8) + np.array([255, 0, 0], np.uint8)


def test_jpeg_files_in_a_row_are_decoded_channels_first(tmp_path: Path) -> None:
    train = write_jpegs(tmp_path / "train.npz", [jpeg(SMOOTH), jpeg(RED), jpeg(SMOOTH[::-1])], [3, 1, 2])
    test = write_jpegs(tmp_path / "test.npz", [jpeg(RED)], [1])
    found = read_jpegs(train, test)
    assert (found["x_train"].shape, found["x_train"].dtype, found["x_test"].shape) == ((3, 3, 16, 24), np.uint8, (1, 3, 16, 24))
    assert (found["y_train"].tolist(), found["y_test"].tolist()) == ([3, 1, 2], [1])
    assert np.abs(found["x_train"][0].astype(int) - SMOOTH.transpose(2, 0, 1)).mean() < 3
    assert np.abs(found["x_train"][2].astype(int) - SMOOTH[::-1].transpose(2, 0, 1)).mean() < 3
    assert found["x_test"][0].reshape(3, -1).mean(1) == pytest.approx([255, 0, 0], abs=3)


def test_a_grey_jpeg_file_among_coloured_ones_gets_three_equal_channels(tmp_path: Path) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(SMOOTH[:, :, 0]), jpeg(RED)], [0, 1])
    grey = read_jpegs(path, path)["x_train"][0]
    assert np.array_equal(grey[0], grey[1])
    assert np.array_equal(grey[0], grey[2])


@pytest.mark.parametrize("missing", ["jpeg", "offsets", "labels"])
def test_a_file_without_the_arrays_of_the_jpeg_form_is_refused(tmp_path: Path, missing: str) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(RED)], [1])
    with np.load(path) as file:
        np.savez(path, **{name: file[name] for name in file.files if name != missing})
    left = sorted({"jpeg", "offsets", "labels"} - {missing})
    assert message_of(lambda: read(read_jpegs, path, path)) == f"{path}: must hold the arrays jpeg, offsets, labels, found {left}."


def test_a_label_too_few_for_the_jpeg_files_is_refused(tmp_path: Path) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(RED)] * 3, [1, 2])
    assert message_of(lambda: read(read_jpegs, path, path)) == (
        f"{tmp_path}: x_train and y_train must have the same length, above 0, found 3 and 2.")


def test_jpeg_files_without_the_package_that_reads_them_are_refused_with_the_command_that_installs_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(RED)], [1])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackage) as refused:
        read(read_jpegs, path, path)
    assert str(refused.value) == ("reading JPEG images needs the package pillow, which is not installed. "
                                  "Install it: pip install 'fedpareto[images]'")


DAMAGED_JPEG: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a file that is no JPEG": (lambda path: write_jpegs(path, [jpeg(RED), b"hello"], [1, 2]),
                               "UnidentifiedImageError: cannot identify image file"),
    "a JPEG cut short": (lambda path: write_jpegs(path, [jpeg(RED)[:-300]], [1]), "OSError: "),
    "images of different sizes": (lambda path: write_jpegs(path, [jpeg(RED), jpeg(RED[:8])], [1, 2]),
                                  "ValueError: all input arrays must have the same shape"),
    "no images": (lambda path: write_jpegs(path, [], []), "ValueError: need at least one array to stack"),
    "offsets that are floats": (lambda path: write_jpegs(path, [jpeg(RED)], [1], offsets=np.array([0.0, 9.0])),
                                "TypeError: slice indices must be integers"),
    "offsets beyond the end": (lambda path: write_jpegs(path, [jpeg(RED)], [1, 2], offsets=np.array([0, len(jpeg(RED)), 10**9])),
                               "UnidentifiedImageError: cannot identify image file"),
    "one offset": (lambda path: write_jpegs(path, [jpeg(RED)], [1], offsets=np.array(0)), "TypeError: iteration over a 0-d array"),
}


@pytest.mark.parametrize("name", DAMAGED_JPEG)
def test_jpeg_files_that_cannot_be_decoded_are_refused(tmp_path: Path, name: str) -> None:
    write, found = DAMAGED_JPEG[name]
    whole = write_jpegs(tmp_path / "whole.npz", [jpeg(RED)], [1])
    damaged = write(tmp_path / "damaged.npz")
    assert damage(read_jpegs, damaged, whole).startswith(found)
    assert damage(read_jpegs, whole, damaged).startswith(found)


# functions


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported, with functions that give data in several ways."""
    (tmp_path / "own_data_of_a_test.py").write_text("""\
import numpy as np

x, y = np.arange(24, dtype=np.uint8).reshape(4, 2, 3), np.array([0, 1, 2, 1])
in_order = lambda: (x, y, x[:2], y[:2])
by_name = lambda: {"y_test": y[:2], "x_test": x[:2], "y_train": y, "x_train": x}
as_keras = lambda: ((x, y), (x[:2], y[:2]))
of_nothing = lambda: None
of_few_labels = lambda: (x, y[:3], x[:2], y[:2])
of_columns = lambda: {1: x, "y_train": y}
of_ragged_rows = lambda: ([[1, 2], [3], [4], [5]], y, x[:2], y[:2])
takes = lambda folder: in_order()
number = 3

def breaks():
    raise KeyError("pixel_0")

def gives_up():
    from fedpareto.errors import DataError
    raise DataError("there is no such table")
""")
    (tmp_path / "broken_data_of_a_test.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_data_of_a_test", raising=False)
    return "own_data_of_a_test"


@pytest.mark.parametrize("function", ["in_order", "by_name"])
def test_a_function_of_the_users_own_gives_the_arrays(module: str, function: str) -> None:
    assert same(call_function(f"{module}:{function}"), WHOLE)


@pytest.mark.parametrize(("function", "message"), [
    ("as_keras", "must hold the arrays x_train, y_train, x_test, y_test, found tuple."),
    ("of_nothing", "must hold the arrays x_train, y_train, x_test, y_test, found NoneType."),
    ("of_few_labels", "x_train and y_train must have the same length, above 0, found 4 and 3.")])
def test_a_function_that_gives_something_else_is_refused_by_its_name(module: str, function: str, message: str) -> None:
    assert message_of(lambda: call_function(f"{module}:{function}")) == f"{module}:{function}: {message}"


@pytest.mark.parametrize(("name", "found"), [
    ("no_such_module_at_all:make", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    ("own_data_of_a_test:make", "AttributeError: module 'own_data_of_a_test' has no attribute 'make'"),
    ("broken_data_of_a_test:make", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
    (":make", "ValueError: Empty module name")])
@pytest.mark.usefixtures("module")
def test_a_function_that_cannot_be_imported_is_refused(name: str, found: str) -> None:
    assert message_of(lambda: call_function(name)) == (
        f"data.name: {name!r} must be importable, found {found}. Install the package that holds it, or put the module beside "
        "the study file.")


@pytest.mark.parametrize(("function", "found"), [
    ("number", "TypeError: 'int' object is not callable"),
    ("takes", "TypeError: <lambda>() missing 1 required positional argument: 'folder'"),
    ("breaks", "KeyError: 'pixel_0'"),
    ("gives_up", "DataError: there is no such table")])
def test_what_cannot_be_called_for_data_is_refused_with_what_it_raised(module: str, function: str, found: str) -> None:
    name = f"{module}:{function}"
    assert message_of(lambda: call_function(name)) == (
        f"data.name: {name!r} must be a function that returns the arrays x_train, y_train, x_test, y_test, found {found}.")


@pytest.mark.parametrize("function", ["of_columns", "of_ragged_rows"])
def test_a_function_that_gives_what_are_no_arrays_is_refused_by_its_name(module: str, function: str) -> None:
    assert f"{module}:{function}" in message_of(lambda: call_function(f"{module}:{function}"))
