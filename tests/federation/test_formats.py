"""Data files: each format gives back what was put in, and what does not fit is refused in words that name the file."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import sys
import tarfile
import tracemalloc
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
                                               "y_train must hold numbers to predict that are finite and below 1e38, found others."),
    "numbers to predict beyond single precision": (WHOLE | {"y_train": Y * 1.0, "y_test": Y[:2] - 1e300},
                                                   "y_test must hold numbers to predict that are finite and below 1e38, found others."),
    "inputs without a number": (WHOLE | {"x_train": X[:, :0], "x_test": X[:2, :0]},
                                "x_train must have inputs with numbers, found shape (4, 0, 3)."),
    "floats without a number": (WHOLE | {"x_train": np.zeros((4, 0)), "x_test": np.zeros((2, 0))},
                                "x_train must have inputs with numbers, found shape (4, 0)."),
    "test inputs without a number": (WHOLE | {"x_test": X[:2, :, :0]}, "x_test must have inputs with numbers, found shape (2, 2, 0)."),
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
    np.savez_compressed(file, **WHOLE | {"x_train": np.random.default_rng(0).integers(0, 99, (400, 20), np.uint8)})
    return file.getvalue()


NOT_NPZ = {
    "a text": (b"x_train,y_train\n1,2\n", "BadZipFile: File is not a zip file"),
    "nothing": (b"", "BadZipFile: File is not a zip file"),
    "a file cut short": (npz_of(**WHOLE)[:1000], "BadZipFile: File is not a zip file"),
    "a file with a wrong byte": (spoiled(npz_of(**WHOLE | {"x_train": np.zeros(1000, np.uint8)}), range(500, 501)),
                                 "BadZipFile: Bad CRC-32 for file 'x_train.npy'"),
    "a single array": (npy(), "BadZipFile: File is not a zip file"),
    "wrong bytes inside": (spoiled(compressed(), range(100, 400)), "error: Error -3 while decompressing data: "),  # zlib's
}


@pytest.mark.parametrize("name", NOT_NPZ)
def test_what_is_no_npz_file_of_plain_arrays_is_refused(tmp_path: Path, name: str) -> None:
    content, reason = NOT_NPZ[name]
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    assert damage(read_npz, path).startswith(reason)


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
    assert message_of(lambda: read(read_npz, path)) == (
        f"{path}: x_train must be an array of numbers, found '|O'. Objects and tables are not read: save plain arrays.")
    path.write_bytes(pickle.dumps(Bomb(mark)))
    assert damage(read_npz, path) == "BadZipFile: File is not a zip file"
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["<f4", ">f4", ">f8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_any_byte_order_in_rows_or_columns_are_read(tmp_path: Path, kind: str, order: str) -> None:
    x = np.asarray(np.arange(24).reshape(4, 2, 3), kind, order=order)
    np.savez(tmp_path / "own.npz", **WHOLE | {"x_train": x, "x_test": x[:2], "y_train": Y.astype(">i4")})
    found = read_npz(tmp_path / "own.npz")
    assert np.array_equal(found["x_train"], x)
    assert np.array_equal(found["y_train"], Y)
    assert found["x_train"].flags.writeable


def npy_of(header: str | bytes, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """Return an .npy file with a header of one's own."""
    text = header if isinstance(header, bytes) else header.encode()
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + content


def zip_of(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def crafted(path: Path, header: str | bytes, content: bytes = b"", **more: Any) -> Path:
    """Write a whole .npz file, but for x_train, which has this header and content."""
    fine = {name: npy_of(f"{{'descr': '{a.dtype.str}', 'fortran_order': False, 'shape': {a.shape}}}", a.tobytes()) for name, a in WHOLE.items()}
    return zip_of(path, fine | {"x_train": npy_of(header, content, **more)})


def declares(descr: str = "'|u1'", shape: str = "(4, 2, 3)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


HEADERS = {
    "terabytes": (declares(shape="(10**6, 10**6)".replace("10**6", "1000000")), "must have the 1,000,000,000,000 bytes of an array"),
    "more than any number": (declares(shape=f"({2**62}, {2**62}, 4)"), f"must have the {2**126:,} bytes of an array"),
    "a shape that wraps to the right size": (declares(shape=f"({2**63}, 2, 24)"), f"must have the {2**64 * 24:,} bytes of an array"),
    "fewer bytes than there are": (declares(shape="(4, 2, 2)"), "must have the 16 bytes of an array (4, 2, 2) of uint8, found 24."),
    "a negative side": (declares(shape="(-4, -2, 3)"), "must declare a shape of at most 32 sides, found "),
    "a side that is true": (declares(shape="(True, 24)"), "must declare a shape of at most 32 sides, found "),
    "a shape that is a list": (declares(shape="[4, 2, 3]"), "must declare a shape of at most 32 sides, found "),
    "a hundred sides": (declares(shape=f"({'1, ' * 100}24)"), "must declare a shape of at most 32 sides, found "),
    "an order that is a number": (declares(order="0"), "must declare a shape of at most 32 sides, found "),
    "objects": (declares("'|O'"), "must be an array of numbers, found '|O'."),
    "a table": (declares("[('a', '<f4'), ('b', '<i4')]"), "must be an array of numbers, found "),
    "raw bytes without a size": (declares("'|V0'"), "must be an array of numbers, found '|V0'."),
    "dates": (declares("'<M8[ns]'"), "must be an array of numbers, found '<M8[ns]'."),
    "long texts": (declares("'|S2147483647'"), "must be an array of numbers, found '|S2147483647'."),
    "a key too many": ("{'descr': '|u1', 'fortran_order': False, 'shape': (4, 2, 3), 'more': 1}", "must declare descr, fortran_order and shape,"),
    "no table": ("[1, 2]", "must declare descr, fortran_order and shape, found '[1, 2]'."),
    "a long header": (declares() + " " * 2000, "must have a header of at most 1,000 bytes, found 2,0"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie_are_refused_before_anything_is_allocated(tmp_path: Path, name: str) -> None:
    header, message = HEADERS[name]
    path = crafted(tmp_path / "own.npz", header, X.tobytes())
    tracemalloc.start()
    try:
        assert message_of(lambda: read(read_npz, path)).startswith(f"{path}: x_train {message}")
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", ["__import__('os').mkdir('mark')", "(" * 900, "-" * 900 + "1", "{" * 50, "", "\0" * 10, "{'descr': }", "1" * 900])
def test_headers_that_are_no_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = crafted(tmp_path / "own.npz", header, X.tobytes())
    assert message_of(lambda: read(read_npz, path)).startswith(f"{path}: ")
    assert not (tmp_path / "mark").exists()


def test_versions_of_npy_files_that_hold_numbers_are_read_and_others_refused(tmp_path: Path) -> None:
    assert same(read_npz(crafted(tmp_path / "own.npz", declares(), X.tobytes(), version=b"\2\0")), WHOLE)
    path = crafted(tmp_path / "own.npz", declares(), X.tobytes(), version=b"\3\0")
    assert message_of(lambda: read(read_npz, path)) == (
        f"{path}: x_train must be an .npy file of version 1 or 2, found b'\\x93NUMPY\\x03\\x00'.")


def test_an_npz_file_that_expands_to_far_more_than_itself_is_refused_unread(tmp_path: Path) -> None:
    size = 80 * 2**20
    path = crafted(tmp_path / "own.npz", declares(shape=f"({size}, 1)"), bytes(size))
    tracemalloc.start()
    try:
        message = message_of(lambda: read(read_npz, path))
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()
    assert message.startswith(f"{path}: must not expand to more than 100 times its size, found 83,88")
    assert message.endswith(" bytes. If that is right, save it with np.savez, which does not compress.")
    assert path.stat().st_size < 2**20


def test_an_npz_file_larger_than_the_memory_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpareto.federation.bounds.memory", lambda unknown: 2000)
    path = tmp_path / "own.npz"
    path.write_bytes(npz_of(**WHOLE | {"x_train": np.zeros((4, 1000))}))
    assert message_of(lambda: read(read_npz, path)).startswith(f"{path}: its arrays must fit half of the memory, 1,000 bytes, found 3")


def test_what_else_an_npz_file_holds_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(npz_of(**WHOLE, more=np.array([Bomb(tmp_path / "mark")], dtype=object)))
    assert same(read_npz(path), WHOLE)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_arrays_compressed_as_numpy_does_not_are_refused(tmp_path: Path, kind: int) -> None:
    path = zip_of(tmp_path / "own.npz", dict.fromkeys(NAMES, npy()), kind)
    assert message_of(lambda: read(read_npz, path)) == (
        f"{path}: x_train must be stored plain or deflated, found compression {kind}. Save it with np.savez.")


def test_a_file_that_lists_a_hundred_thousand_names_is_refused_before_they_are_read(tmp_path: Path) -> None:
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 100, 100, len(entry) * 100_000, 0, 0)
    path = tmp_path / "own.npz"
    path.write_bytes(entry * 100_000 + end)
    assert message_of(lambda: read(read_npz, path)) == f"{path}: must list few arrays, found 4,700,000 bytes of names."
    path.write_bytes(entry * 3 + end.replace(struct.pack("<L", len(entry) * 100_000), struct.pack("<L", len(entry) * 3)))
    assert message_of(lambda: read(read_npz, path)) == f"{path}: must hold the arrays {', '.join(NAMES)}, found ['a']."


def test_a_file_of_many_others_names_a_few_of_them(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "own.npz", {f"a{i:03}": b"" for i in range(500)})
    message = message_of(lambda: read(read_npz, path))
    assert message.endswith("'a008', 'a009'] and 490 more.")


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
    "a byte too few": (idx_of(8, 4, 2, 3, content=X.tobytes()[:-1]), "of 24 bytes, as its shape (4, 2, 3) says, found 23. Fetch it again."),
    "a byte too many": (idx_of(8, 4, 2, 3, content=X.tobytes() + b"!"), "of 24 bytes, as its shape (4, 2, 3) says, found more. Fetch it again."),
    "no content": (idx_of(8, 4, 2, 3), "of 24 bytes, as its shape (4, 2, 3) says, found 0. Fetch it again."),
    "floats": (idx_of(13, 2, content=bytes(8)), "of bytes, found one that begins b'\\x00\\x00\\r\\x01'."),
    "no shape": (idx_of(8, content=b"!"), "of bytes, found one that begins b'\\x00\\x00\\x08\\x00'."),
    "200 sides": (b"\0\0\x08\xc8" + bytes(2000), "of bytes, found one that begins b'\\x00\\x00\\x08\\xc8'."),
    "another beginning": (b"PK\x03\x00" + bytes(4), "of bytes, found one that begins b'PK\\x03\\x00'."),
    "nothing": (b"", "of bytes, found one that begins b''."),
    "two bytes": (b"\0\0", "of bytes, found one that begins b'\\x00\\x00'."),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", NOT_IDX)
def test_what_is_no_idx_file_is_refused(
        tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], name: str, zipped: bool) -> None:
    content, reason = NOT_IDX[name]
    idx_files(tmp_path, zipped)
    path = tmp_path / (f"{IMAGES}.gz" if zipped else IMAGES)
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert message_of(lambda: read(read_idx, tmp_path)) == f"{path}: must be an idx file {reason}"


def test_idx_files_that_do_not_fit_together_are_refused(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    idx_files(tmp_path, zipped=False)
    (tmp_path / IMAGES).write_bytes(idx_of(8, 3, 5, 4, content=bytes(60)))
    assert message_of(lambda: read(read_idx, tmp_path)) == (
        f"{tmp_path}: x_train and y_train must have the same length, above 0, found 3 and 40.")


SMALL = idx_of(8, 40, content=bytes(40))
DAMAGED_IDX = {
    "a shape cut short": (IMAGES, idx_of(8, 4, 2, 3)[:10], "error: unpack requires a buffer of 12 bytes"),  # struct's
    "a zip cut short": (f"{IMAGES}.gz", gzip.compress(SMALL)[:-10], "EOFError: Compressed file ended before the end-of-stream"),
    "a zip with wrong bytes": (f"{IMAGES}.gz", spoiled(gzip.compress(SMALL), range(15, 25)), ""),
    "a zip with a wrong sum": (f"{IMAGES}.gz", spoiled(zipped := gzip.compress(idx_of(8, 1, content=b"!")),
                                                       range(len(zipped) - 8, len(zipped) - 4)), "BadGzipFile: CRC check failed"),
    "no zip at all": (f"{IMAGES}.gz", b"hello", "BadGzipFile: Not a gzipped file (b'he')"),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("shape", [(2**31, 2**31, 2**31), (2**32 - 1,) * 4, (2**27,)])
def test_an_idx_file_that_declares_more_than_it_can_hold_is_refused_unread(
        tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], zipped: bool, shape: tuple[int, ...]) -> None:
    idx_files(tmp_path, zipped)
    content = idx_of(8, *shape, content=bytes(2**20))
    path = tmp_path / (f"{IMAGES}.gz" if zipped else IMAGES)
    path.write_bytes(gzip.compress(content) if zipped else content[:100])
    assert message_of(lambda: read(read_idx, tmp_path)).startswith(f"{path}: must not expand to more than 100 times its size, found ")


def test_a_gzip_file_of_more_than_its_shape_says_is_read_no_further(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    idx_files(tmp_path)
    (tmp_path / f"{IMAGES}.gz").write_bytes(gzip.compress(idx_of(8, 4, content=bytes(2**26)), 1))
    tracemalloc.start()
    try:
        assert message_of(lambda: read(read_idx, tmp_path)).endswith("of 4 bytes, as its shape (4,) says, found more. Fetch it again.")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", DAMAGED_IDX)
def test_a_damaged_idx_file_is_refused(tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], name: str) -> None:
    file, content, found = DAMAGED_IDX[name]
    idx_files(tmp_path, zipped=False)
    (tmp_path / file).write_bytes(content)
    assert damage(read_idx, tmp_path).startswith(found)


# CIFAR-10's archive: pickles of Python 2, as they are distributed


# The first bytes of data_batch_1 as published, and those between its labels and its pixels.
START = bytes.fromhex("80027d710128550b62617463685f6c6162656c71025515747261696e696e672062617463682031206f6620357103"
                      "55066c6162656c7371045d7105284b064b094b094b04")
HEAD = bytes.fromhex(
    "65550464617461710663" "6e756d70792e636f72652e6d756c746961727261790a5f7265636f6e7374727563740a7107636e756d70790a6e6461727261790a7108"
    "4b0085550162875271" "09284b014d10274d000c86636e756d70790a64747970650a710a550275314b004b018752710b284b0355017c4e4e4e4affffffff4affffffff"
    "4b0074628954" "00c0d401")


def text(content: bytes) -> bytes:
    return b"U" + bytes([len(content)]) + content


def batch(x: np.ndarray, y: list[int], label: bytes = b"training batch 1 of 5") -> bytes:
    """Return a batch as Python 2 pickled it: a table of texts, with an array and lists."""
    labels = b"".join(b"(" + b"".join(b"K" + bytes([c]) for c in y[i : i + 1000]) + b"e" for i in range(0, len(y), 1000))
    head = HEAD[1:].replace(b"M\x10'", b"M" + struct.pack("<H", len(x))).replace(b"\x00\xc0\xd4\x01", struct.pack("<I", x.size))
    files = b"".join(text(b"leptodactylus_pentadactylus_s_000004.png") for _ in y)
    return (b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(label) + b"q\x03" + text(b"labels") + b"q\x04]q\x05" + labels
            + head + x.tobytes() + b"tb" + text(b"filenames") + b"q\x0c]q\x0d(" + files + b"eu.")


BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 2, 3072), np.uint8)
CIFAR = {name: batch(PIXELS[i], [i, 9 - i]) for i, name in enumerate(BATCHES)}
META = pickle.dumps({b"label_names": [b"airplane", b"automobile"], b"num_cases_per_batch": 10000}, 2)


def archive(path: Path, batches: dict[str, bytes], kinds: dict[str, bytes] | None = None, tar_format: int = tarfile.GNU_FORMAT) -> Path:
    """Write an archive laid out like cifar-10-python.tar.gz; some of its members may be other than plain files."""
    with tarfile.open(path, "w:gz", format=tar_format, compresslevel=1) as file:
        folder = tarfile.TarInfo("cifar-10-batches-py")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
        for name, content in {**batches, "batches.meta": META, "readme.html": b"<html>"}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.type = (kinds or {}).get(name, tarfile.REGTYPE)
            member.linkname = "/etc/passwd" if name in (kinds or {}) else ""
            member.size = len(content) if member.isreg() else 0
            file.addfile(member, io.BytesIO(content))
    return path


def test_batches_here_are_pickled_as_python_2_did() -> None:
    found = pickle.loads(CIFAR["data_batch_2"], encoding="bytes")
    assert set(found) == {b"batch_label", b"labels", b"data", b"filenames"}
    assert np.array_equal(found[b"data"], PIXELS[1])
    assert found[b"labels"] == [1, 8]
    published = batch(np.zeros((10_000, 3072), np.uint8), [6, 9, 9, 4] * 2500)
    assert published.startswith(START)
    assert HEAD in published


def test_a_batch_of_ten_thousand_images_is_read(tmp_path: Path) -> None:
    x, y = np.repeat(np.arange(10_000).astype(np.uint8)[:, None], 3072, axis=1), np.arange(10_000) % 10
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"test_batch": batch(x, y.tolist(), b"testing batch 1 of 1")})
    found = read_cifar_archive(path)
    assert np.array_equal(found["x_test"].reshape(-1, 3072), x)
    assert np.array_equal(found["y_test"], y)


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_a_cifar_archive_is_read_in_the_order_of_its_batches(tmp_path: Path, tar_format: int) -> None:
    found = read_cifar_archive(archive(tmp_path / "cifar-10-python.tar.gz", dict(reversed(CIFAR.items())), tar_format=tar_format))
    assert (found["x_train"].shape, found["x_test"].shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert found["x_train"].dtype == np.uint8
    assert found["y_train"].tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert found["y_test"].tolist() == [5, 4]
    red, green, blue = PIXELS[1, 1].reshape(3, 32, 32)  # a row of 3072: all red, then all green, then all blue
    assert np.array_equal(found["x_train"][3], np.stack([red, green, blue]))
    assert np.array_equal(found["x_test"].reshape(2, -1), PIXELS[5])


def another_layout(path: Path) -> str:
    """Return what is said of a third batch that has another layout."""
    return (f"{path}: data_batch_3 must have the layout of CIFAR-10's batches, found other bytes, which are not read since they could "
            "hold code. Fetch the archive again.")


FLAGS = b"K\x3f"  # says that an array of bytes holds Python objects
EVIL: dict[str, Callable[[Path], bytes]] = {
    "a call of the system": lambda mark: f"cos\nsystem\n(S'mkdir {mark}'\ntR.".encode(),
    "a call of the system, in Python 2's name": lambda mark: f"cposix\nsystem\n(S'mkdir {mark}'\ntR.".encode(),
    "Python itself": lambda mark: f"c__builtin__\neval\n(S'__import__(\"os\").mkdir(\"{mark}\")'\ntR.".encode(),
    "numpy's own way to run code": lambda mark: f"cnumpy.f2py\nrun_main\n(](S'{mark}'\netR.".encode(),
    "a name with a dot": lambda mark: b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
    "an object of today": lambda mark: pickle.dumps(Bomb(mark), 4),
    "an object inside an array": lambda mark: pickle.dumps({b"data": np.array([Bomb(mark)], dtype=object)}, 4),
    "bytes taken for the addresses of objects": lambda mark: CIFAR["data_batch_3"].replace(b"K\x00tb\x89T", FLAGS + b"tb\x89T"),
    "a kind of array with chosen flags": lambda mark: CIFAR["data_batch_3"].replace(b"NNNJ\xff\xff\xff\xff", b"NNNJ\x08\0\0\0"),
    "an array of objects": lambda mark: CIFAR["data_batch_3"].replace(b"U\x02u1", b"U\x02O8"),
    "another function in the place of numpy's": lambda mark: CIFAR["data_batch_3"].replace(b"_reconstruct", b"__reduce_ex"),
    "another module in the place of numpy": lambda mark: CIFAR["data_batch_3"].replace(b"cnumpy\ndtype", b"cnumpi\ndtype"),
    "a call before the layout": lambda mark: b"\x80\x02" + f"cos\nmkdir\n(S'{mark}'\ntR0".encode() + CIFAR["data_batch_3"][2:],
    "a batch pickled anew": lambda mark: pickle.dumps({b"data": PIXELS[2], b"labels": [2, 7]}, 4),
    "no pickle": lambda mark: b"hello",
    "nothing": lambda mark: b"",
    "a list": lambda mark: pickle.dumps([1, 2], 2),
    "an empty table": lambda mark: b"\x80\x02}.",
    "images of another size": lambda mark: CIFAR["data_batch_3"].replace(b"M\x00\x0c", b"M\x00\x03"),
    "a label above nine": lambda mark: batch(PIXELS[2], [2, 10]),
    "no labels": lambda mark: batch(PIXELS[2], []),
}


@pytest.mark.parametrize("name", EVIL)
def test_batches_of_another_layout_are_refused_and_nothing_in_them_is_run(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    assert EVIL[name](mark) != CIFAR["data_batch_3"]
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"data_batch_3": EVIL[name](mark)})
    assert message_of(lambda: read(read_cifar_archive, path)) == another_layout(path)
    assert not mark.exists()


def test_code_elsewhere_in_a_cifar_archive_is_not_run(tmp_path: Path) -> None:
    mark, call = tmp_path / "mark", pickle.dumps(Bomb(tmp_path / "mark"))
    after = {name: content[:-1] + call for name, content in CIFAR.items()}  # behind the pixels, where nothing is read
    assert len(read_cifar_archive(archive(tmp_path / "cifar-10-python.tar.gz", after | {"extra.pickle": call}))["y_train"]) == 10
    assert not mark.exists()


def test_a_cifar_archive_whose_labels_do_not_fit_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"test_batch": batch(PIXELS[0], [1, 2, 3])})
    assert message_of(lambda: read(read_cifar_archive, path)) == (
        f"{path}: x_test and y_test must have the same length, above 0, found 2 and 3.")


@pytest.mark.parametrize(("content", "found"), [
    (CIFAR["test_batch"].replace(b"M\x02\x00M", b"M\xff\xffM"), "201,323,520 bytes of pixels for 65,535 images, found 6,144 declared"),
    (CIFAR["test_batch"].replace(b"T\x00\x18\x00\x00", b"T\x00\x18\x00\xff"), "6,144 bytes of pixels for 2 images, found 4,278,196,224 declared"),
    (CIFAR["test_batch"][:-2000], "6,144 bytes of pixels for 2 images, found 6,144 declared")], ids=["images", "bytes", "cut short"])
def test_a_batch_without_the_pixels_that_it_declares_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR | {"test_batch": content})
    assert message_of(lambda: read(read_cifar_archive, path)).startswith(f"{path}: test_batch must have {found} in a file of ")


KINDS = {"a link": tarfile.SYMTYPE, "a hard link": tarfile.LNKTYPE, "a device": tarfile.CHRTYPE, "a disk": tarfile.BLKTYPE,
         "a pipe": tarfile.FIFOTYPE, "a folder": tarfile.DIRTYPE}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_plain_file_in_an_archive_is_not_followed(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "cifar-10-python.tar.gz", CIFAR, {"data_batch_2": KINDS[name]})
    assert message_of(lambda: read(read_cifar_archive, path)).endswith(", found no data_batch_2. Fetch it again.")


@pytest.mark.parametrize("outside", ["../mark", "../../mark", "/tmp/mark"])
def test_a_name_that_leads_out_of_the_archive_leads_nowhere(tmp_path: Path, outside: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    read_cifar_archive(archive(inside / "cifar-10-python.tar.gz", CIFAR | {outside: b"content"}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [inside / "cifar-10-python.tar.gz"]


def missing(*names: str) -> str:
    return f"must hold the files cifar-10-batches-py/{', '.join(BATCHES)}, found no {' and no '.join(names)}. Fetch it again."


MANY = "must hold fewer than 20 files of at most 40,000,000 bytes, found more. Fetch it again."
UNFIT_ARCHIVES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "without batches": (lambda path: archive(path, {}), missing(*BATCHES)),
    "without a test batch": (lambda path: archive(path, {n: b for n, b in CIFAR.items() if n != "test_batch"}), missing("test_batch")),
    "of another folder": (lambda path: archive(path, {f"../{n}": b for n, b in CIFAR.items()}), missing(*BATCHES)),
    "of nothing": (lambda path: path.write_bytes(gzip.compress(b"")), missing(*BATCHES)),
    "of no tar": (lambda path: path.write_bytes(gzip.compress(b"hello" * 200)), "must be a gzipped tar, found another kind of file."),
    "of many files": (lambda path: archive(path, {f"{i}": b"" for i in range(1000)} | CIFAR), MANY),
    "of a huge file": (lambda path: archive(path, {"huge": bytes(50_000_000)} | CIFAR), MANY),
    "of zeros": (lambda path: path.write_bytes(gzip.compress(bytes(10**8), 1)), missing(*BATCHES)),
}


@pytest.mark.parametrize("name", UNFIT_ARCHIVES)
def test_an_archive_that_does_not_hold_the_batches_is_refused(tmp_path: Path, name: str) -> None:
    write, message = UNFIT_ARCHIVES[name]
    path = tmp_path / "cifar-10-python.tar.gz"
    write(path)
    tracemalloc.start()
    try:
        assert message_of(lambda: read(read_cifar_archive, path)) == f"{path}: {message}"
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("write", "found"), [
    (lambda path: path.write_bytes(b"hello"), "BadGzipFile: Not a gzipped file (b'he')"),
    (lambda path: path.write_bytes(archive(path, CIFAR).read_bytes()[:2000]), "EOFError: Compressed file ended before the end-of-stream"),
], ids=["no archive", "cut short"])
def test_a_damaged_cifar_archive_is_refused(tmp_path: Path, write: Callable[[Path], Any], found: str) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    write(path)
    assert damage(read_cifar_archive, path).startswith(found)


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
    "a picture of another kind": (lambda path: write_jpegs(path, [b"P6 1 1 255\n123"], [1]), "UnidentifiedImageError: cannot identify"),
    "a JPEG cut short": (lambda path: write_jpegs(path, [jpeg(RED)[:-300]], [1]), "OSError: "),
}


@pytest.mark.parametrize("name", DAMAGED_JPEG)
def test_jpeg_files_that_cannot_be_decoded_are_refused(tmp_path: Path, name: str) -> None:
    write, found = DAMAGED_JPEG[name]
    whole = write_jpegs(tmp_path / "whole.npz", [jpeg(RED)], [1])
    damaged = write(tmp_path / "damaged.npz")
    assert damage(read_jpegs, damaged, whole).startswith(found)
    assert damage(read_jpegs, whole, damaged).startswith(found)


END = len(jpeg(RED))
OFFSETS = {
    "of no images": np.array([0]), "that are none": np.array([], int), "that are floats": np.array([0.0, END]), "that are one": np.array(0),
    "in two rows": np.array([[0, END]]), "beyond the end": np.array([0, END, 10**9]), "before the start": np.array([-5, END]),
    "that go back": np.array([0, END, 0]), "that stand still": np.array([0, 0, END]), "that are huge": np.array([0, 2**64 - 1], np.uint64),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_that_do_not_cut_files_are_refused(tmp_path: Path, name: str) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(RED)], [1], offsets=OFFSETS[name])
    assert message_of(lambda: read(read_jpegs, path, path)) == (
        f"{path}: must hold a row of bytes jpeg and growing offsets into it, one more than images, found uint8 ({END},) and "
        f"{OFFSETS[name].dtype} {OFFSETS[name].shape}.")


def test_jpeg_files_of_two_sizes_are_refused(tmp_path: Path) -> None:
    path = write_jpegs(tmp_path / "train.npz", [jpeg(RED), jpeg(RED[:8])], [1, 2])
    assert message_of(lambda: read(read_jpegs, path, path)) == f"{path}: must hold images of one size, found 24 × 16 and 24 × 8."


def test_a_jpeg_file_that_claims_to_be_huge_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    small = jpeg(RED)
    huge = small.replace(struct.pack(">HH", 16, 24), struct.pack(">HH", 9000, 9000), 1)
    assert huge != small
    path = write_jpegs(tmp_path / "train.npz", [huge], [1])
    assert message_of(lambda: read(read_jpegs, path, path)).startswith(
        f"{path}: must not expand to more than 100 times its size, found 243,000,000 bytes of arrays in a file of ")


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


def test_a_number_in_place_of_a_function_is_refused(module: str) -> None:
    assert message_of(lambda: call_function(f"{module}:number")) == (
        f"data.name: '{module}:number' must be a function, found 3.")


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
    ("broken_data_of_a_test:make", "ModuleNotFoundError: No module named 'no_such_module_at_all'")])
@pytest.mark.usefixtures("module")
def test_a_function_that_cannot_be_imported_is_refused(name: str, found: str) -> None:
    assert message_of(lambda: call_function(name)) == (
        f"data.name: {name!r} must be importable, found {found}. Install the package that holds it, or put the module beside "
        "the study file.")


@pytest.mark.parametrize(("function", "found"), [
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
