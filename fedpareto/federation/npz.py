"""Read arrays of numbers from .npz files that need not be trusted.

An .npz file is a zip of .npy files. What their headers declare is checked before anything is
allocated, and arrays of Python objects, which could run code, are refused.
"""

from __future__ import annotations

import ast
import io
import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError
from fedpareto.federation.bounds import check_room

LONGEST_HEADER = 1_000  # bytes; numpy's own of an array of numbers has 118
MOST_DIMENSIONS = 32
CHUNK = 2**20
LONGEST_PIECE = 2**22
PACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}  # the ways in which numpy writes
NUMBERS = re.compile(r"[<>|=]?[biufcSU]\d{1,4}")  # texts are refused later, in better words


class _Pieces(io.FileIO):
    """A file that is read in small pieces: only a list of very many names would be a large one."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > LONGEST_PIECE:
            raise DataError(f"{self.name}: must list few arrays, found {size:,} bytes of names.")
        return super().read(size)


def read_arrays(
    path: Path, names: Sequence[str], also: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return the named arrays of an .npz file, and others if all of them are there.

    What else it holds is not read.
    """
    with _Pieces(str(path)) as raw, zipfile.ZipFile(raw) as file:
        members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        if not set(names) <= set(members):
            found = sorted(members)
            more = f" and {len(found) - 10} more" if len(found) > 10 else ""
            raise DataError(
                f"{path}: must hold the arrays {', '.join(names)}, found {found[:10]}{more}."
            )
        names = [*names, *(also if set(also) <= set(members) else ())]
        check_room(path, sum(members[name].file_size for name in names))
        return {name: _array(file, members[name], f"{path}: {name}") for name in names}


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """Return one array, whose header must agree with the length of its file."""
    if info.compress_type not in PACKED:
        raise DataError(
            f"{where} must be stored plain or deflated, found compression {info.compress_type}. "
            "Save it with np.savez."
        )
    with file.open(info) as member:
        length, header = _header(member, where)
        shape, dtype, columns_first = _declared(header, where)
        size = math.prod(shape) * dtype.itemsize
        if size != info.file_size - length:
            raise DataError(
                f"{where} must have the {size:,} bytes of an array {shape} of {dtype}, found "
                f"{info.file_size - length:,}. Save it again."
            )
        flat = np.empty(math.prod(shape), dtype)
        _fill(flat, member)
    return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)


def _header(member: IO[bytes], where: str) -> tuple[int, str]:
    """Return where the numbers of an .npy file begin, and the text of its header."""
    start = member.read(8)
    if start not in (b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00"):
        raise DataError(f"{where} must be an .npy file of version 1 or 2, found {start!r}.")
    width = 2 * start[6]  # of the number that says how long the header is
    length = int.from_bytes(member.read(width), "little")
    if length > LONGEST_HEADER:
        raise DataError(
            f"{where} must have a header of at most {LONGEST_HEADER:,} bytes, found {length:,}."
        )
    return 8 + width + length, member.read(length).decode("latin1")


def _declared(header: str, where: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return the shape and kind that a header declares, and whether columns come first."""
    found = ast.literal_eval(header.strip())
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise DataError(f"{where} must declare descr, fortran_order and shape, found {header!r}.")
    kind, shape, columns_first = found["descr"], found["shape"], found["fortran_order"]
    if not isinstance(kind, str) or not NUMBERS.fullmatch(kind):
        raise DataError(
            f"{where} must be an array of numbers, found {str(kind)[:40]!r}. Objects and tables "
            "are not read: save plain arrays."
        )
    sizes = isinstance(shape, tuple) and all(type(side) is int and side >= 0 for side in shape)
    if not sizes or len(shape) > MOST_DIMENSIONS or type(columns_first) is not bool:
        raise DataError(
            f"{where} must declare a shape of at most {MOST_DIMENSIONS} sides, found {header!r}."
        )
    return shape, np.dtype(kind), columns_first


def _fill(flat: NDArray[Any], member: IO[bytes]) -> None:
    """Read the numbers of an array, in small pieces, so that they are held once."""
    view = flat.view(np.uint8)
    for start in range(0, len(view), CHUNK):
        piece = member.read(min(CHUNK, len(view) - start))
        view[start : start + CHUNK] = np.frombuffer(piece, np.uint8)  # fails if some are missing
