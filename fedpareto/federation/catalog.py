"""The data sets that are known by name: their files, how to read them, where they are published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedpareto.federation.download import Remote
from fedpareto.federation.formats import (
    Arrays,
    read_cifar_archive,
    read_idx,
    read_jpegs,
    read_npz,
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
