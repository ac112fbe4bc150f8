"""Read Parquet files that need not be trusted: flat columns of numbers, words and dates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedpareto.errors import DataError, MissingPackage
from fedpareto.federation.bounds import CELL, bounded, check_room

ROWS = 4096  # that are read at a time
DISTINCT = {"RLE_DICTIONARY", "PLAIN_DICTIONARY", "PLAIN", "RLE"}  # ways to write a word once


def read_parquet(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names of a file's columns, and the cells of each as text.

    What the file declares is checked before it is read. It may lie: a few bytes can stand for
    gigabytes of text. So what reads it may not take more memory than such a file needs.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingPackage("pyarrow", "parquet", "reading Parquet files") from None
    with bounded(path), _plain_memory():
        try:
            file = parquet.ParquetFile(path)
            _check_declared(path, file)
            return _cells(parquet.ParquetFile(path, read_dictionary=_words(file)))
        except MemoryError:
            raise DataError(
                f"{path}: must not expand to far more than its size, found a file that asks for "
                "more memory than one of its size may. Save it with pandas, or as .csv."
            ) from None


@contextlib.contextmanager
def _plain_memory() -> Iterator[None]:
    """Let pyarrow ask the system for what it needs, and not for a gigabyte ahead."""
    import pyarrow

    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        yield
    finally:
        pyarrow.set_memory_pool(before)


def _words(file: Any) -> list[str]:
    """Return the columns that hold each of their words once, so that cells can point at them."""
    from pyarrow import types

    names = [field.name for field in file.schema_arrow if types.is_string(field.type)]
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    held = [group.column(i) for group in groups for i in range(group.num_columns)]
    other = {column.path_in_schema for column in held if not DISTINCT.issuperset(column.encodings)}
    return [name for name in names if name not in other]


def _cells(file: Any) -> tuple[list[str], list[list[str]]]:
    """Return the names of a file's columns, and their cells, some thousand rows at a time."""
    names = list(file.schema_arrow.names)
    columns: list[list[str]] = [[] for _ in names]
    for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
        for cells, column in zip(columns, batch.columns, strict=True):
            cells += _texts(column)
    return names, columns


def _texts(column: Any) -> list[str]:
    """Return cells as text; cells of one word are one object."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return [_as_text(cell) for cell in column.to_pylist()]
    words = [_as_text(word) for word in column.dictionary.to_pylist()]
    return ["" if at is None else words[at] for at in column.indices.to_pylist()]


def _check_declared(path: Path, file: Any) -> None:
    """Refuse a file that declares too much, or columns that hold more than one value a cell."""
    found = file.metadata
    groups = [found.row_group(i).total_byte_size for i in range(found.num_row_groups)]
    check_room(path, max(CELL * found.num_rows * found.num_columns, sum(groups)))
    from pyarrow import types

    for field in file.schema_arrow:
        if types.is_nested(field.type) or types.is_binary(field.type):
            raise DataError(
                f"{path}: column {field.name!r} must hold a number, a word or a date in each cell, "
                f"found {field.type}. Leave it out."
            )


def _as_text(cell: object) -> str:
    if cell is None:
        return ""
    return repr(float(cell)) if isinstance(cell, int | float) else str(cell)
