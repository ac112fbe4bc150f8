"""Rows of the tables as trials, and back: numbers are JSON, and what is not finite is null."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedpareto.trials import (
    Result,
    Trial,
    deviation,
    mean,
    mean_curves,
    printable,
    read_curves,
    write_curves,
)


def read_measures(text: str | None) -> dict[str, float]:
    """Return measures, name → value, from JSON; null is nan."""
    found = _named(text or "{}")
    return {name: math.nan if value is None else value for name, value in found.items()}


def _named(text: str) -> dict[str, Any]:
    """Return what JSON says by name; all trials share the names, which very many would fill."""
    return {sys.intern(name): value for name, value in json.loads(text).items()}


def write_measures(measures: Mapping[str, float]) -> str:
    """Return measures as JSON; what is not finite is null."""
    found = {name: float(v) if math.isfinite(v) else None for name, v in measures.items()}
    return json.dumps(found)


def trial_of(row: tuple[Any, ...], done: Collection[int], repeats: int) -> Trial:
    """Return the trial that a row of the table holds, of whose repeats these are done."""
    number, batch, point, settings, state, measures, spread, error, curves = row
    if state == "stopped":  # what older versions called a run that they ended early
        state = "failed"
    left: tuple[int, ...] = ()
    if state == "pending":
        left = tuple(r for r in range(repeats) if r not in done)
    return Trial(
        number,
        batch,
        tuple(json.loads(point)),
        _named(settings),
        state,
        read_measures(measures),
        read_measures(spread),
        error,
        left,
        read_curves(curves),
        len(done),
    )


def result_row(result: Result) -> tuple[Any, ...]:
    """Return the row of the table that a training's result is kept in, but for its checksum."""
    return (
        result.trial,
        result.repeat,
        write_measures(result.measures),
        None if result.error is None else printable(result.error),
        write_curves(result.curves),
    )


def summed(trainings: Sequence[tuple[str, str | None, str | None]]) -> dict[str, Any]:
    """Return what a trial's trainings come to: state, means, spreads, curves, why it failed.

    A training is its measures as JSON, its error and its curves as JSON.
    """
    measured = [read_measures(text) for text, _, _ in trainings]
    shared = [name for name in measured[0] if all(name in m for m in measured)]
    columns = {name: [m[name] for m in measured] for name in shared}
    means = {name: mean(c) for name, c in columns.items()}
    error = _first_error([error for _, error, _ in trainings])
    return {
        "state": "failed" if error else "done",
        "measures": means,
        "spread": {name: deviation(c, means[name]) for name, c in columns.items()},
        "error": error,
        "curves": mean_curves([read_curves(text) for _, _, text in trainings]),
    }


def finished_row(
    trainings: Sequence[tuple[str, str | None, str | None]],
) -> tuple[str, str, str, str | None, str | None]:
    """Return what a finished trial's row holds of its trainings: state, means, spreads, …"""
    found = summed(trainings)
    means, spreads = write_measures(found["measures"]), write_measures(found["spread"])
    return found["state"], means, spreads, found["error"], write_curves(found["curves"])


def _first_error(errors: Sequence[str | None]) -> str | None:
    """Return the first error of a trial's repeats; of several repeats, it says which."""
    for i, error in enumerate(errors):
        if error:
            return f"{error} (repeat {i})" if len(errors) > 1 else error
    return None
