"""Read CIFAR-10's cifar-10-python.tar.gz, whose batches are Python pickles, without unpickling.

Unpickling a file can run code or stop the process. All batches were written by one program, so
their bytes have one layout: a start, the labels, the head of the array, and its pixels. That layout
is matched byte by byte, and anything else is refused.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
MOST_FILES = 20  # the archive has 9 files and folders, of 31 million bytes at the most
MOST_BYTES = 40_000_000  # of one file
BLOCK = 512  # bytes; a tar is made of such blocks
PIXELS = 3 * 32 * 32

LAYOUT = re.compile(
    rb"\x80\x02}q\x01\(U\x0bbatch_labelq\x02U[\x01-\x40][ -~]{1,64}"
    rb"q\x03U\x06labelsq\x04]q\x05((?:\((?:K[\x00-\x09]){1,1000}e){1,65})"
    rb"U\x04dataq\x06cnumpy\.core\.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08"
    rb"K\x00\x85U\x01b\x87Rq\t\(K\x01M(..)M\x00\x0c\x86cnumpy\ndtype\nq\n"
    rb"U\x02u1K\x00K\x01\x87Rq\x0b\(K\x03U\x01\|NNNJ\xff{4}J\xff{4}K\x00tb\x89T(....)",
    re.DOTALL,
)

Batch = tuple[NDArray[np.uint8], NDArray[Any]]


def read_batches(path: Path) -> dict[str, Batch]:
    """Return the images [n,3,32,32] and labels [n] of each batch in the archive, by its name."""
    wanted = (*TRAIN, TEST)
    found = {}
    for name, content in _files(path):
        batch = name.removeprefix(f"{FOLDER}/")
        if name != batch and batch in wanted:
            found[batch] = _batch(content, f"{path}: {batch}")
    missing = [batch for batch in wanted if batch not in found]
    if missing:
        raise DataError(
            f"{path}: must hold the files {FOLDER}/{', '.join(wanted)}, found no "
            f"{' and no '.join(missing)}. Fetch it again."
        )
    return found


def _batch(content: bytes, where: str) -> Batch:
    """Return the images and labels of one batch; a label is 0 to 9."""
    match = LAYOUT.match(content)
    if match is None:
        raise DataError(
            f"{where} must have the layout of CIFAR-10's batches, found other bytes, which are "
            "not read since they could hold code. Fetch the archive again."
        )
    labels = np.frombuffer(match[1].translate(None, b"(Ke"), np.uint8)
    n = int.from_bytes(match[2], "little")
    size = int.from_bytes(match[3], "little")
    if size != n * PIXELS or match.end() + size >= len(content):
        raise DataError(
            f"{where} must have {n * PIXELS:,} bytes of pixels for {n:,} images, found {size:,} "
            f"declared in a file of {len(content):,}. Fetch the archive again."
        )
    pixels = np.frombuffer(content, np.uint8, size, match.end())
    return pixels.reshape(n, 3, 32, 32), labels


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Give the name and content of each plain file of a tar; links, folders and devices are not.

    Nothing is written to disk, so a name cannot lead anywhere.
    """
    with gzip.open(path) as file:
        for _ in range(MOST_FILES):
            header = file.read(BLOCK)
            if not header.strip(b"\0"):
                return
            digits = header[124:136].strip(b"\0 ")
            if len(header) < BLOCK or not re.fullmatch(b"[0-7]{1,11}", digits):
                raise DataError(f"{path}: must be a gzipped tar, found another kind of file.")
            size = int(digits, 8)
            if size > MOST_BYTES:
                break
            content = file.read(size)
            file.read(-size % BLOCK)
            if header[156:157] in b"0\0":
                yield header[:100].split(b"\0")[0].decode("latin1"), content
    raise DataError(
        f"{path}: must hold fewer than {MOST_FILES} files of at most {MOST_BYTES:,} bytes, found "
        "more. Fetch it again."
    )
