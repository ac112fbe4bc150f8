"""Data sets: the real ones as they are known, the user's own as they were given, and words that help where they are missing."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from fedpareto.errors import DataError, SettingError
from fedpareto.federation.data import FILES, SETS, Data, Dataset, _loaded, directory, load, present
from fedpareto.federation.download import Remote, _md5, verify
from fedpareto.settings.beside import folders
from fedpareto.study import load_study

IDX_NAMES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
PLAIN_NAMES = tuple(name.removesuffix(".gz") for name in IDX_NAMES)
WAYS = {
    "mnist": ["mnist.npz", *(" and ".join(f"mnist/{name}" for name in names) for names in (IDX_NAMES, PLAIN_NAMES))],
    "fashion-mnist": ["fashion_mnist.npz",
                      *(" and ".join(f"fashion-mnist/{name}" for name in names) for names in (IDX_NAMES, PLAIN_NAMES))],
    "cifar10": ["cifar10.npz", "cifar10-train-jpeg.npz and cifar10-test-jpeg.npz", "cifar-10-python.tar.gz"],
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No data directory but those that a test names, nothing kept from other tests or left to them, and no network."""
    monkeypatch.delenv("FEDPARETO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for name, files in FILES.items():
        closed = tuple(Remote(f"http://127.0.0.1:9/{remote.path}", remote.path, remote.md5) for remote in files.remotes)
        monkeypatch.setitem(FILES, name, dataclasses.replace(files, remotes=closed))
    _loaded.cache_clear()
    yield
    _loaded.cache_clear()


def rows(n: int = 40, test: int = 20, shape: tuple[int, ...] = (6, 5), kind: Any = np.uint8) -> dict[str, np.ndarray]:
    """Return the four arrays of a data set; images differ in their first number."""
    def images(count: int, first: int) -> np.ndarray:
        x = np.zeros((count, *shape))
        x.reshape(count, -1)[:, 0] = first + np.arange(count)
        return x.astype(kind)

    return {"x_train": images(n, 0), "y_train": np.arange(n) % 4, "x_test": images(test, 100), "y_test": np.arange(test) % 4}


def saved(path: Path, **arrays: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def as_published(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Let these files of a data set be those that were published."""
    remotes = tuple(dataclasses.replace(remote, md5=hashlib.md5((folder / remote.path).read_bytes()).hexdigest())
                    for remote in FILES[name].remotes)
    monkeypatch.setitem(FILES, name, dataclasses.replace(FILES[name], remotes=remotes))


def with_data(study: Path, name: str) -> Path:
    """Name these data in a study file in place of those that it names."""
    study.write_text(re.sub(r'(?<=\[data\]\nname = )"[^"]*"', f'"{name}"', study.read_text()))
    return study


def message_of(data: Data) -> str:
    with pytest.raises(DataError) as refused:
        load(data)
    return str(refused.value)


# the real data sets


def per_class(labels: np.ndarray) -> list[int]:
    return np.bincount(labels).tolist()


def described(data: Dataset) -> tuple[Any, ...]:
    kinds = {data.x_train.dtype, data.x_test.dtype}, {data.y_train.dtype, data.y_test.dtype}
    return data.x_train.shape, data.x_test.shape, data.shape, data.classes, data.scale, data.shift, *kinds


def test_the_digits_are_those_of_scikit_learn() -> None:
    found, (images, labels) = load(Data("digits")), load_digits(return_X_y=True)
    assert described(found) == ((1438, 1, 8, 8), (359, 1, 8, 8), (1, 8, 8), 10, 1 / 16, 0.0, {np.dtype(np.uint8)}, {np.dtype(np.int64)})
    assert np.array_equal(found.x_test.reshape(-1, 64), images[4::5])
    assert np.array_equal(found.y_test, labels[4::5])
    assert np.array_equal(np.sort(np.concatenate([found.y_train, found.y_test])), np.sort(labels))
    assert (found.x_train * found.scale).max() == 1.0


def test_mnist_is_as_it_is_known(real_data: Path) -> None:
    found = load(Data("mnist", directory=str(real_data)))
    assert described(found) == (
        (60_000, 1, 28, 28), (10_000, 1, 28, 28), (1, 28, 28), 10, 1 / 255, 0.0, {np.dtype(np.uint8)}, {np.dtype(np.int64)})
    assert per_class(found.y_train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert per_class(found.y_test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert found.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # in the order in which it was published
    assert found.y_test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    scaled = found.x_train * np.float32(found.scale)
    assert (scaled.mean(), scaled.std()) == (pytest.approx(0.1307, abs=5e-5), pytest.approx(0.3081, abs=5e-5))  # as torchvision has it


def test_fashion_mnist_is_as_it_is_known(real_data: Path) -> None:
    found = load(Data("fashion-mnist", directory=str(real_data)))
    assert described(found) == (
        (60_000, 1, 28, 28), (10_000, 1, 28, 28), (1, 28, 28), 10, 1 / 255, 0.0, {np.dtype(np.uint8)}, {np.dtype(np.int64)})
    assert per_class(found.y_train) == [6000] * 10
    assert per_class(found.y_test) == [1000] * 10
    scaled = found.x_train * np.float32(found.scale)
    known = pytest.approx(0.2860, abs=5e-4), pytest.approx(0.3530, abs=5e-4)  # of the published order, which copies need not have
    assert (scaled.mean(), scaled.std()) == known


def test_cifar10_is_decoded_from_its_jpeg_form(cifar10: Dataset) -> None:
    assert described(cifar10) == (
        (50_000, 3, 32, 32), (10_000, 3, 32, 32), (3, 32, 32), 10, 1 / 255, 0.0, {np.dtype(np.uint8)}, {np.dtype(np.int64)})
    assert per_class(cifar10.y_train) == [5000] * 10
    assert per_class(cifar10.y_test) == [1000] * 10
    assert cifar10.x_train.flags.c_contiguous
    some = cifar10.x_train[::5].astype(np.float32) / 255
    assert some.mean((0, 2, 3)) == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.004)  # red, green, blue, of the images as published
    assert some.std((0, 2, 3)) == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.004)


def test_a_class_of_cifar10_looks_the_same_in_training_and_test_images(cifar10: Dataset) -> None:
    """Each mean training image is nearest to the mean test image of its own class."""
    means = [np.stack([x[y == c].mean(0, dtype=np.float32).ravel() for c in range(10)])
             for x, y in ((cifar10.x_train, cifar10.y_train), (cifar10.x_test, cifar10.y_test))]
    apart = np.linalg.norm(means[0][:, None] - means[1][None], axis=2)
    assert apart.argmin(1).tolist() == list(range(10))


# where they are looked for


def test_the_studys_directory_comes_before_the_environment_and_that_before_the_cache(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory() == tmp_path / "cache" / "fedpareto"
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path / "named"))
    assert directory() == tmp_path / "named"
    assert directory(str(tmp_path / "study")) == tmp_path / "study"
    monkeypatch.setenv("FEDPARETO_DATA", "")
    assert directory() == tmp_path / "cache" / "fedpareto"


def test_without_a_named_cache_it_is_that_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), lambda: monkeypatch.delenv("XDG_CACHE_HOME")):
        unset()
        assert directory() == tmp_path / ".cache" / "fedpareto"
    assert directory("~/mine") == tmp_path / "mine"
    monkeypatch.setenv("FEDPARETO_DATA", "~/named")
    assert directory() == tmp_path / "named"


def test_data_are_read_from_the_directory_that_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"cache": tmp_path / "cache" / "fedpareto", "named": tmp_path / "named", "study": tmp_path / "study"}
    for n, place in enumerate(places.values()):
        saved(place / "mnist.npz", **rows(10 + n))
    assert len(load(Data("mnist")).y_train) == 10
    monkeypatch.setenv("FEDPARETO_DATA", str(places["named"]))
    assert len(load(Data("mnist")).y_train) == 11
    assert len(load(Data("mnist", directory=str(places["study"]))).y_train) == 12


@pytest.mark.parametrize("name", FILES)
def test_the_forms_of_a_data_set_are_tried_in_order(tmp_path: Path, name: str) -> None:
    assert present(name, tmp_path) is None
    for names, reader in reversed(FILES[name].ways):
        for path in [tmp_path / file for file in names]:
            assert present(name, tmp_path) is None or present(name, tmp_path)[1] is not reader
            path.parent.mkdir(exist_ok=True)
            path.touch()
        assert present(name, tmp_path) == (tuple(tmp_path / file for file in names), reader)


@pytest.mark.parametrize("name", FILES)
def test_a_data_set_that_is_neither_here_nor_to_be_had_says_what_to_put_where(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    message = message_of(Data(name, directory=str(folder)))
    assert message.startswith(f"{name}: needs its files in {folder}, found none and could not download them (")
    assert "Connection refused" in message
    assert message.endswith(f"Put one of these there: {'; or '.join(WAYS[name])}. Or name another folder: data.directory in the study, "
                            "or FEDPARETO_DATA.")
    assert not folder.exists()


def test_half_of_a_data_set_is_not_enough(tmp_path: Path) -> None:
    saved(tmp_path / "cifar10-train-jpeg.npz", jpeg=[], offsets=[], labels=[])
    assert message_of(Data("cifar10", directory=str(tmp_path))).startswith(f"cifar10: needs its files in {tmp_path}, ")


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    data = Data("mnist", directory=str(tmp_path))
    message_of(data)
    saved(tmp_path / "mnist.npz", **rows())
    assert len(load(data).y_train) == 40


def test_what_was_read_is_kept(tmp_path: Path) -> None:
    data = Data("mnist", directory=str(tmp_path))
    path = saved(tmp_path / "mnist.npz", **rows())
    first = load(data)
    path.unlink()
    assert load(dataclasses.replace(data)) is first
    assert load(dataclasses.replace(data, clients=7, split="dirichlet", alpha=2.0, shards=3)) is first


def test_the_same_directory_by_another_name_is_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "named" / "mnist.npz", **rows())
    first = load(Data("mnist", directory=str(tmp_path / "named")))
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path / "named"))
    assert load(Data("mnist")) is first
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(Data("mnist", directory="~/named")) is first


def test_more_clients_than_images_are_refused_also_of_data_that_were_read_before() -> None:
    load(Data("digits", clients=1))
    assert message_of(Data("digits", clients=1439)).startswith("data.clients: every client needs an image, so at most 1,438 clients ")
    assert len(load(Data("digits", clients=1438)).y_train) == 1438


def test_gzipped_idx_files_in_a_folder_of_the_data_sets_name_are_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    for name in ("mnist", "fashion-mnist"):
        written = idx_files(tmp_path / name)
        as_published(monkeypatch, name, tmp_path)
        found = load(Data(name, directory=str(tmp_path)))
        assert np.array_equal(found.x_train, written["x_train"][:, None])
        assert np.array_equal(found.y_test, written["y_test"])


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_that_are_not_gzipped_are_found_too(
        tmp_path: Path, idx_files: Callable[..., dict[str, np.ndarray]], name: str) -> None:
    written = idx_files(tmp_path / name, zipped=False)
    found = load(Data(name, directory=str(tmp_path)))
    assert np.array_equal(found.x_train, written["x_train"][:, None])
    assert np.array_equal(found.y_test, written["y_test"])


@pytest.mark.parametrize("zipped", [True, False])
def test_images_read_from_idx_files_can_be_handed_to_torch_without_a_warning(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_files: Callable[..., dict[str, np.ndarray]], zipped: bool) -> None:
    idx_files(tmp_path / "mnist", zipped)
    if zipped:
        as_published(monkeypatch, "mnist", tmp_path)
    found = load(Data("mnist", directory=str(tmp_path)))
    for array in (found.x_train, found.y_train, found.x_test, found.y_test):
        assert array.flags.writeable
        torch.from_numpy(array)  # warns of what is read-only, and a warning is an error here


def test_a_data_set_cut_short_on_its_way_is_refused_by_its_paths(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    arrays = idx_files(tmp_path / "mnist")
    content = struct.pack(">BBBBIII", 0, 0, 8, 3, *arrays["x_train"].shape) + arrays["x_train"].tobytes()
    (tmp_path / "mnist" / IDX_NAMES[0]).write_bytes(gzip.compress(content)[:-10])
    as_published(monkeypatch, "mnist", tmp_path)
    paths = " and ".join(str(tmp_path / "mnist" / name) for name in IDX_NAMES)
    assert message_of(Data("mnist", directory=str(tmp_path))) == (
        f"{paths}: must be whole and of the stated format, found EOFError: Compressed file ended before the end-of-stream marker "
        "was reached. Fetch it again.")


@pytest.mark.parametrize("name", ["own", "mnist", "cifar10"])
def test_an_npz_file_cut_short_is_refused_by_its_path(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / f"{name}.npz", **rows())
    path.write_bytes(path.read_bytes()[:1000])
    assert message_of(Data("own.npz" if name == "own" else name, directory=str(tmp_path))) == (
        f"{path}: must be whole and of the stated format, found BadZipFile: File is not a zip file. Fetch it again.")


# files that were put there, not downloaded


def test_a_published_file_that_was_changed_is_refused_with_both_sums_and_what_to_do(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_files: Callable[..., dict[str, np.ndarray]]) -> None:
    idx_files(tmp_path / "mnist")
    as_published(monkeypatch, "mnist", tmp_path)
    path = tmp_path / "mnist" / IDX_NAMES[2]
    before = hashlib.md5(path.read_bytes()).hexdigest()
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))  # a readable file, and another one
    after = hashlib.md5(path.read_bytes()).hexdigest()
    assert message_of(Data("mnist", directory=str(tmp_path))) == (
        f"{path}: must be the file as published, with the md5 sum {before}, found {after}. Delete it and it is fetched again. Data of "
        "your own: an .npz file.")
    assert hashlib.md5(path.read_bytes()).hexdigest() == after


def test_the_archive_of_cifar10_is_checked_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"hello")
    assert message_of(Data("cifar10", directory=str(tmp_path))).startswith(
        f"{tmp_path / 'cifar-10-python.tar.gz'}: must be the file as published, with the md5 sum c58f30108f718f92721af3b95e74349a, found ")


def test_files_that_are_not_as_published_by_their_form_are_read_without_a_sum(tmp_path: Path) -> None:
    saved(tmp_path / "cifar10.npz", **rows(shape=(3, 4, 4)))
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not looked at")
    assert len(load(Data("cifar10", directory=str(tmp_path))).y_train) == 40


def test_a_sum_is_taken_once_and_again_when_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    sums = {content: hashlib.md5(content).hexdigest() for content in (b"one", b"two")}
    _md5.cache_clear()
    for _ in range(3):
        verify(path, sums[b"one"])
    assert _md5.cache_info().misses == 1
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 1))
    verify(path, sums[b"two"])
    with pytest.raises(DataError, match="must be the file as published"):
        verify(path, sums[b"one"])
    assert _md5.cache_info().misses == 2


# the user's own


@pytest.mark.parametrize("name", ["digit", "MNIST", "cifar-10", "imagenet", "", "own.npy", "own"])
def test_a_name_that_stands_for_nothing_is_refused_with_the_names_that_do(name: str) -> None:
    with pytest.raises(SettingError) as refused:
        Data(name)
    message = str(refused.value)
    assert message.startswith(f"name: there is no data set {name!r}. ")
    assert message.endswith(" Your own data: the path of an .npz file, or a function as package.module:function.")
    assert "Did you mean" in message or f"Known: {', '.join(sorted(SETS))}." in message


def test_a_name_near_another_is_taken_for_a_slip() -> None:
    for name, meant in {"digit": "digits", "mnst": "mnist", "fashion_mnist": "fashion-mnist", "cifar-10": "cifar10"}.items():
        with pytest.raises(SettingError, match=f"Did you mean '{meant}'"):
            Data(name)


def test_an_npz_file_of_ones_own_is_read_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = rows()
    path = saved(tmp_path / "deep" / "own.npz", **arrays)
    assert np.array_equal(load(Data(str(path))).x_train, arrays["x_train"][:, None])
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(load(Data("deep/own.npz")).y_test, arrays["y_test"])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert np.array_equal(load(Data("~/deep/own.npz")).y_test, arrays["y_test"])


def test_an_npz_file_of_ones_own_is_read_by_its_name_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "named" / "own.npz", **rows(11))
    saved(tmp_path / "study" / "own.npz", **rows(12))
    assert len(load(Data("own.npz", directory=str(tmp_path / "study"))).y_train) == 12
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path / "named"))
    assert len(load(Data("own.npz")).y_train) == 11


def test_an_npz_file_that_is_not_there_is_refused_with_where_it_was_looked_for(tmp_path: Path) -> None:
    assert message_of(Data("own.npz", directory=str(tmp_path))) == (
        f"data.name: own.npz must be an .npz file, found none beside the study file, in the working folder or in {tmp_path}.")
    (tmp_path / "own.npz").mkdir()
    assert message_of(Data(str(tmp_path / "own.npz"), directory=str(tmp_path))) == (
        f"data.name: {tmp_path / 'own.npz'} must be an .npz file, found none beside the study file, in the working folder or in "
        f"{tmp_path}.")


def test_an_npz_file_that_does_not_fit_is_refused_by_its_path(tmp_path: Path) -> None:
    path = saved(tmp_path / "own.npz", **rows() | {"y_test": np.arange(3)})
    assert message_of(Data(str(path))) == f"{path}: x_test and y_test must have the same length, above 0, found 20 and 3."


FUNCTION = """\
import numpy as np

def make():
    x = np.linspace(0, 1, 200).reshape(50, 4)
    return x, np.arange(50) % 3, x[:10], np.arange(10) % 3
"""


def test_a_function_of_ones_own_gives_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data_made_by_a_test.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "data_made_by_a_test", raising=False)
    found = load(Data("data_made_by_a_test:make"))
    assert (found.shape, found.classes, len(found.y_test), found.scale, found.x_train.dtype) == ((4,), 3, 10, 1.0, np.float32)


def test_a_function_beside_the_study_file_gives_data(tiny_study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_study.with_name("data_beside_a_test.py").write_text(FUNCTION)
    monkeypatch.delitem(sys.modules, "data_beside_a_test", raising=False)
    problem = load_study(with_data(tiny_study, "data_beside_a_test:make")).problem
    problem.check()
    assert len(load(problem.data).y_train) == 50


def test_an_npz_file_beside_the_study_file_gives_data(tiny_study: Path) -> None:
    saved(tiny_study.with_name("own.npz"), **rows(13))
    saved(tiny_study.parent / "deep" / "own.npz", **rows(14))
    for name, n in {"own.npz": 13, "deep/own.npz": 14}.items():
        problem = load_study(with_data(tiny_study, name)).problem
        problem.check()
        assert len(load(problem.data).y_train) == n


def test_an_npz_file_is_looked_for_beside_the_study_file_then_as_named_then_in_the_data_directory(
        tiny_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    study = with_data(tiny_study, "own.npz")
    for n, place in enumerate([tmp_path / "cache" / "fedpareto", tmp_path / "here", tiny_study.parent]):  # each comes before the last
        saved(place / "own.npz", **rows(20 + n))
        _loaded.cache_clear()
        assert len(load(load_study(study).problem.data).y_train) == 20 + n


def test_an_npz_file_beside_a_study_is_found_wherever_one_goes_after_reading_it(
        tiny_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tiny_study.with_name("own.npz"), **rows(15))
    with_data(tiny_study, "own.npz")
    monkeypatch.chdir(tiny_study.parent)
    data = load_study(Path(tiny_study.name)).problem.data
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(load(data).y_train) == 15
    assert Path(data.name) == tiny_study.with_name("own.npz").resolve()


def test_an_npz_file_on_the_path_of_modules_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "modules" / "own.npz", **rows())
    monkeypatch.syspath_prepend(tmp_path / "modules")
    assert message_of(Data("own.npz", directory=str(tmp_path))).startswith("data.name: own.npz must be an .npz file, found none ")


def test_reading_a_study_leaves_the_path_of_modules_as_it_is_and_keeps_its_folder_once(tiny_study: Path) -> None:
    before = sys.path.copy()
    for _ in range(3):
        load_study(tiny_study)
    assert sys.path == before
    assert folders()[0] == tiny_study.parent.resolve()
    assert folders().count(folders()[0]) == 1


def test_each_of_two_studies_gets_the_file_beside_it(study_text: str, tmp_path: Path) -> None:
    found = {}
    for n, name in enumerate(("first", "second")):
        saved(tmp_path / name / "own.npz", **rows(10 + n))
        (tmp_path / name / "tiny.toml").write_text(study_text)
        found[name] = len(load(load_study(with_data(tmp_path / name / "tiny.toml", "own.npz")).problem.data).y_train)
    assert found == {"first": 10, "second": 11}


# what models get


@pytest.mark.parametrize(("given_shape", "shape"), [
    ((6, 5), (1, 6, 5)), ((1, 6, 5), (1, 6, 5)), ((3, 6, 5), (3, 6, 5)), ((6, 5, 1), (1, 6, 5)), ((6, 5, 3), (3, 6, 5)),
    ((3, 6, 3), (3, 6, 3)), ((7,), (7,)), ((28, 28), (1, 28, 28)), ((28, 3), (1, 28, 3)), ((2, 3, 4, 5), (2, 3, 4, 5))])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_grey_images_get_a_channel_and_channels_that_come_last_are_turned(
        tmp_path: Path, given_shape: tuple[int, ...], shape: tuple[int, ...], kind: type) -> None:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (12, *given_shape)).astype(kind)
    path = saved(tmp_path / "own.npz", x_train=x, y_train=np.arange(12), x_test=x[:4], y_test=np.arange(4))
    found = load(Data(str(path)))
    assert found.shape == shape
    assert found.x_test.shape[1:] == shape
    turned = x.transpose(0, 3, 1, 2) if len(given_shape) == 3 and shape != given_shape else x.reshape(12, *shape)
    assert np.array_equal(found.x_train, turned)
    assert np.array_equal(found.x_test, turned[:4])
    assert found.x_train.flags.c_contiguous
    assert found.x_train.dtype == kind


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_stay_floats_of_single_precision_and_are_not_scaled(tmp_path: Path, kind: type) -> None:
    path = saved(tmp_path / "own.npz", **rows(shape=(4,), kind=kind))
    found = load(Data(str(path)))
    assert (found.x_train.dtype, found.x_test.dtype, found.scale) == (np.float32, np.float32, 1.0)
    assert found.x_train[:, 0].tolist() == list(range(40))


def test_floats_too_large_for_single_precision_are_refused(tmp_path: Path) -> None:
    arrays = rows(shape=(4,), kind=np.float64)
    arrays["x_train"][3, 2] = 1e300
    path = saved(tmp_path / "own.npz", **arrays)
    assert message_of(Data(str(path))) == (
        f"{path}: x_train must be uint8, or floats that are finite and below 1e38, found float64 of another kind.")


def test_floats_almost_too_large_stay_finite(tmp_path: Path) -> None:
    arrays = rows(shape=(4,), kind=np.float64)
    arrays["x_train"][3, 2], arrays["x_test"][0, 1] = 9.9e37, -9.9e37
    found = load(Data(str(saved(tmp_path / "own.npz", **arrays))))
    assert np.isfinite(found.x_train).all()
    assert np.isfinite(found.x_test).all()


@pytest.mark.parametrize("bytes_in", ["train", "test"])
def test_training_and_test_images_have_one_scale(tmp_path: Path, bytes_in: str) -> None:
    held = {part: np.uint8 if part == bytes_in else np.float32 for part in ("train", "test")}
    path = saved(tmp_path / "own.npz", **rows() | {f"x_{part}": rows(kind=kind)[f"x_{part}"] for part, kind in held.items()})
    assert message_of(Data(str(path))) == (
        f"{path}: x_train and x_test must both be uint8 or both floats, found {np.dtype(held['train'])} and {np.dtype(held['test'])}.")


def test_bytes_are_scaled_to_one(tmp_path: Path) -> None:
    found = load(Data(str(saved(tmp_path / "own.npz", **rows()))))
    assert (found.x_train.dtype, found.scale, found.shift) == (np.uint8, 1 / 255, 0.0)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
def test_labels_of_any_kind_of_whole_number_become_the_same(tmp_path: Path, kind: type) -> None:
    arrays = rows()
    path = saved(tmp_path / "own.npz", **arrays | {"y_train": arrays["y_train"].astype(kind)[:, None]})
    found = load(Data(str(path)))
    assert found.y_train.dtype == np.int64
    assert np.array_equal(found.y_train, arrays["y_train"])


def test_a_class_that_is_seen_in_testing_only_counts(tmp_path: Path) -> None:
    path = saved(tmp_path / "own.npz", **rows() | {"y_test": np.arange(20) % 7})
    assert load(Data(str(path))).classes == 7


# a share of the images


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0))
@settings(max_examples=30)
def test_a_smaller_share_is_a_part_of_a_larger_one_with_its_labels(first: float, second: float) -> None:
    small, large = (load(Data("digits", clients=1, share=share)) for share in sorted([first, second]))
    whole = load(Data("digits"))
    assert len(small.y_train) == max(1, round(min(first, second) * 1438))
    images = {image.tobytes(): label for image, label in zip(whole.x_train, whole.y_train, strict=True)}
    assert [images[image.tobytes()] for image in small.x_train] == small.y_train.tolist()
    if max(first, second) < 1:
        assert np.array_equal(small.x_train, large.x_train[: len(small.y_train)])
    assert np.array_equal(small.x_test, whole.x_test)


def test_a_share_is_of_all_classes() -> None:
    assert (np.bincount(load(Data("digits", share=0.2)).y_train) > 15).all()


def test_the_tiniest_share_is_one_image() -> None:
    assert len(load(Data("digits", clients=1, share=1e-9)).y_train) == 1


@pytest.mark.parametrize(("share", "most"), [(1.0, "1,438"), (0.1, "144")])
def test_more_clients_than_images_are_refused(share: float, most: str) -> None:
    fits = int(most.replace(",", ""))
    load(Data("digits", clients=fits, share=share))
    assert message_of(Data("digits", clients=fits + 1, share=share)) == (
        f"data.clients: every client needs an image, so at most {most} clients for digits, found {fits + 1:,}. Lower data.clients.")
