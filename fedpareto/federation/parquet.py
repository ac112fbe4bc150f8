"""Read Parquet files that need not be trusted: flat columns of numbers, words and dates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpareto.errors import DataError, MissingPackage
from fedpareto.federation.bounds import CELL, bounded, check_room


def read_parquet(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names of a file's columns, and the cells of each as text.

    What the file declares is checked before it is read. It may lie: a few bytes can stand for
    gigabytes of text. So what reads it may not take more memory than such a file needs.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingPackage("pyarrow", "parquet", "reading Parquet files") from None
    with bounded(path):
        try:
            file = parquet.ParquetFile(path)
            _check_declared(path, file)
            table = file.read(use_threads=False)
            cells = [[_as_text(cell) for cell in column.to_pylist()] for column in table.columns]
        except MemoryError:
            raise DataError(
                f"{path}: must not expand to far more than its size, found a file that asks for "
                "more memory than one of its size may. Save it with pandas, or as .csv."
            ) from None
    return list(table.column_names), cells


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
