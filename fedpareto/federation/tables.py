"""Read tables: a .csv or Parquet file with a column of labels, one of sites, and inputs."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, FedparetoError, did_you_mean, shown
from fedpareto.federation.bounds import CELL, check_expansion, check_room
from fedpareto.federation.parquet import read_parquet
from fedpareto.noise import rng

Arrays = dict[str, NDArray[Any]]
Table = dict[str, list[str]]  # name of a column → its cells
MOST_WORDS = 50  # that a column of inputs may hold
MOST_LABELS = 1000  # whole numbers up to which labels are classes
LARGEST = 1e38  # that single precision holds, with room to reckon


def is_file_of_table(name: str) -> bool:
    """Say whether a data file is a table."""
    return name.endswith((".csv", ".parquet"))


def read_table(path: Path, label: str, site: str, test_share: float) -> Arrays:
    """Read a table into the arrays of a data set; some records of each site are for testing."""
    try:
        table = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    except FedparetoError:
        raise
    except Exception as error:
        raise DataError(
            f"{path}: must be a table that can be read, found {type(error).__name__}: {error}."
        ) from error
    return arrays_of(str(path), table, label, site, test_share)


def arrays_of(path: str, table: Table, label: str, site: str, test_share: float) -> Arrays:
    """Return the arrays of a table; some records of each site are for testing.

    path says in errors where the table is from.
    """
    table = dict(table)
    labels, sites = (_taken(path, table, key, name) for key, name in _roles(label, site))
    y = _labels(path, label, labels or [])
    where = np.zeros(len(y), dtype=np.int64) if sites is None else codes(sites)
    x, names = _inputs(path, table)
    test = _held_out(path, where, test_share)
    arrays = {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}
    if sites is not None:
        arrays |= {"site_train": where[~test], "site_test": where[test]}
    return arrays | {"names": np.array(names)}


def _roles(label: str, site: str) -> tuple[tuple[str, str], ...]:
    return (("label", label), ("site", site))


def _read_csv(path: Path) -> Table:
    """Return the columns of a .csv file, whose first line names them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        names = next(lines, [])
        check_room(path, CELL * path.stat().st_size // 2)
        _check_names(path, names)
        rows = []
        for row in lines:
            if row and len(row) != len(names):
                raise DataError(
                    f"{path}, line {lines.line_num}: must have {len(names)} cells, as its first "
                    f"line has, found {len(row)}."
                )
            if row:
                rows.append(row)
    if not rows:
        raise DataError(f"{path}: must have records below its first line, found none.")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _read_parquet(path: Path) -> Table:
    """Return the columns of a Parquet file, each cell as text."""
    names, columns = read_parquet(path)
    _check_names(path, names)
    if not columns[0]:
        raise DataError(f"{path}: must have records, found none.")
    return dict(zip(names, columns, strict=True))


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a table without columns, or with two of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if len(names) < 2 or twice:
        found = f"{twice[0]!r} more than once" if twice else f"{len(names)}"
        raise DataError(
            f"{path}: must have at least two columns, each with a name of its own, found {found}."
        )


def _taken(path: str, table: Table, key: str, name: str) -> list[str] | None:
    """Take a column out of a table; None where none is named."""
    if not name:
        return None
    if name not in table:
        raise DataError(
            f"data.{key}: must be a column of {path}, found {name!r}. "
            f"{did_you_mean(name, list(table))}"
        )
    cells = table.pop(name)
    empty = next((i for i, cell in enumerate(cells, 1) if not cell.strip()), None)
    if empty:
        raise _empty(path, name, empty)
    return cells


def _empty(path: str, name: str, record: int) -> DataError:
    return DataError(
        f"{path}: column {name!r} must have no empty cell, found one in record {record}. Fill it, "
        "or leave the record out."
    )


def codes(cells: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each cell among the distinct ones, numbers by size, words by letter."""
    distinct = sorted(set(cells))
    numbers = as_numbers(distinct)
    if numbers is not None:
        distinct = [distinct[i] for i in np.argsort(numbers, kind="stable")]
    place = {cell: i for i, cell in enumerate(distinct)}
    return np.array([place[cell] for cell in cells], dtype=np.int64)


def as_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Return cells as finite numbers; None where one is something else."""
    try:
        found = np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _numbers(path: str, name: str, cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the numbers of a column; None where one is a word."""
    try:
        found = np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None
    wrong = np.flatnonzero(~(np.abs(found) < LARGEST))
    if len(wrong):
        raise DataError(
            f"{path}: column {name!r} must hold numbers that are finite and below {LARGEST:g}, "
            f"found {shown(cells[wrong[0]])} in record {wrong[0] + 1}. Leave that record out."
        )
    return found


def _labels(path: str, name: str, cells: Sequence[str]) -> NDArray[Any]:
    """Return labels as classes if they are words or count from 0; else as numbers to predict."""
    numbers = _numbers(path, name, cells)
    if numbers is None:
        return codes(cells)
    distinct = np.unique(numbers)
    counted = len(distinct) <= MOST_LABELS and np.array_equal(distinct, np.arange(len(distinct)))
    return numbers.astype(np.int64) if counted else numbers.astype(np.float32)


def _inputs(path: str, table: Table) -> tuple[NDArray[np.float32], list[str]]:
    """Return the inputs [n,d] and their names: a number each, or one for each word of a column."""
    parts = [(name, _part(path, name, cells)) for name, cells in table.items()]
    if not parts:
        raise DataError(f"{path}: must have a column of inputs, found only labels and sites.")
    names: list[str] = []
    for name, found in parts:
        words = found if isinstance(found, list) else None
        names += [name] if words is None else [f"{name}={word}" for word in words]
    count = len(next(iter(table.values())))
    letters = sum(len(cell) + 1 for cells in table.values() for cell in cells)
    check_expansion(path, letters, 4 * count * len(names))
    x = np.empty((count, len(names)), dtype=np.float32)
    place = 0
    for name, found in parts:
        columns = [found] if not isinstance(found, list) else _coded(table[name], found)
        for column in columns:
            x[:, place] = column
            place += 1
    return x, names


def _part(path: str, name: str, cells: Sequence[str]) -> NDArray[np.float64] | list[str]:
    """Return the numbers that a column of inputs holds, or the words that it is made of."""
    empty = next((i for i, cell in enumerate(cells, 1) if cell.strip() in ("", "nan")), None)
    if empty:
        raise _empty(path, name, empty)
    numbers = _numbers(path, name, cells)
    if numbers is not None:
        return numbers
    words = sorted(set(cells))
    if len(words) > MOST_WORDS:
        raise DataError(
            f"{path}: column {name!r} must hold numbers, or at most {MOST_WORDS} words, found "
            f"{len(words):,} words, {shown(words[0])} the first. Leave it out, or code it."
        )
    return words


def _coded(cells: Sequence[str], words: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Yield, for each word, where a column holds it."""
    place = {word: i for i, word in enumerate(words)}
    at = np.array([place[cell] for cell in cells])
    return (at == i for i in range(len(words)))


def grouped(owners: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each owner and the places of its records, in order, however many there are."""
    order = np.argsort(owners, kind="stable")
    every, starts = np.unique(owners[order], return_index=True)
    yield from zip(every.tolist(), np.split(order, starts[1:]), strict=True)


def _held_out(path: str, sites: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Say which records are for testing: this share of each site, the first of a fixed shuffle."""
    test = np.zeros(len(sites), dtype=np.bool_)
    for site, mine in grouped(sites):
        count = min(len(mine) - 1, max(1, round(share * len(mine))))
        if count:
            test[rng(0, "test", site).permutation(mine)[:count]] = True
    if not test.any():
        raise DataError(
            f"{path}: some site must have two records, one of them for testing, found none."
        )
    return test


def standardised(arrays: Arrays, how: str, folder: Path) -> Arrays:
    """Return data whose inputs have mean 0 and spread 1, by site or by public statistics."""
    for part in ("x_train", "x_test"):
        if arrays[part].dtype == np.uint8 or arrays[part].ndim != 2:
            raise DataError(
                "data.standardise: must go with inputs [n, columns] of floats, found "
                f"{arrays[part].dtype} of shape {arrays[part].shape}."
            )
    if how == "site":
        return _by_site(arrays)
    mean, spread = _public(arrays, Path(how) if Path(how).is_file() else folder / how)
    parts = {part: (arrays[part] - mean) / spread for part in ("x_train", "x_test")}
    return arrays | {part: x.astype(np.float32) for part, x in parts.items()}


def _by_site(arrays: Arrays) -> Arrays:
    """Standardise the inputs of each site by its own training records."""
    if "site_train" not in arrays:
        raise DataError(
            "data.standardise: site needs data that name the site of each record, found none. "
            "Name the column of a table as data.site."
        )
    out = {part: arrays[part].astype(np.float64) for part in ("x_train", "x_test")}
    tested = dict(grouped(arrays["site_test"]))
    for site, mine in grouped(arrays["site_train"]):
        held = out["x_train"][mine]
        mean, spread = held.mean(axis=0), held.std(axis=0)
        spread[spread < 1e-9 * (1 + np.abs(mean))] = 1.0  # a column that does not vary here
        for part, rows in (("x_train", mine), ("x_test", tested.get(site))):
            if rows is not None:
                out[part][rows] = (out[part][rows] - mean) / spread
    return arrays | {part: x.astype(np.float32) for part, x in out.items()}


def _public(arrays: Arrays, path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and spread of every input from a .csv file."""
    if not path.is_file():
        raise DataError(
            f"data.standardise: {path} must be a .csv file of public statistics, found no such "
            "file. Put it beside the study file or into the data directory."
        )
    table = _read_csv(path)
    missing = {"column", "mean", "spread"} - set(table)
    if missing:
        raise DataError(
            f"{path}: must have the columns column, mean and spread, found {', '.join(table)}."
        )
    names = [str(n) for n in arrays.get("names", np.arange(arrays["x_train"].shape[1]))]
    row = {name: i for i, name in enumerate(table["column"])}
    lacking = [name for name in names if name not in row]
    if lacking:
        raise DataError(
            f"{path}: must have a row for every input, found none for {lacking[0]!r} and "
            f"{len(lacking) - 1} more."
        )
    chosen = [[table[key][row[name]] for name in names] for key in ("mean", "spread")]
    mean, spread = map(as_numbers, chosen)
    if mean is None or spread is None or spread.min() <= 0:
        raise DataError(f"{path}: mean and spread must be numbers, spread above 0, found others.")
    return mean, spread
