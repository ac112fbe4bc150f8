"""What the rows of a ledger may say, and what they add up to.

A ledger begins with a header. Then every attempt at a round has two rows: one before anybody is
asked, one once all answers are in and before their sum is used.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedpareto.contract import BATCHES, SAMPLINGS, WEIGHTINGS
from fedpareto.errors import LedgerError, shown

VERSION = 1
SIDES = ("server", "client")
Row = Mapping[str, Any]
Id = str | int


@dataclass(frozen=True)
class Attempt:
    """One attempt at a round, as far as it is on record."""

    round: int
    attempt: int  # from 1
    asked: tuple[Id, ...]
    norm: float | None = None
    ended: bool = False
    answered: tuple[Id, ...] = ()
    again: tuple[Id, ...] = ()  # who sent the very bytes of an earlier attempt at this round
    noise: tuple[float, ...] | None = None  # of each that answered, in the same order
    record_noise: tuple[float, ...] | None = None  # on each local step, in the same order
    divisor: float | None = None
    server_noise: float = 0.0  # what the server added to the sum itself


@dataclass(frozen=True)
class History:
    """What a ledger says, from its header to its last row."""

    header: Row
    attempts: tuple[Attempt, ...] = ()
    torn: int = 0  # how often a kill left half a row, which was cut off
    last: str = ""  # the hash of the last row

    @cached_property
    def done(self) -> frozenset[int]:
        """Return the rounds that have ended."""
        return frozenset(one.round for one in self.attempts if one.ended)

    @property
    def begun(self) -> frozenset[int]:
        """Return the rounds that were begun, whether they ended or not."""
        return frozenset(one.round for one in self.attempts)

    def attempts_of(self, round: int) -> tuple[Attempt, ...]:
        """Return the attempts at a round, in order."""
        return tuple(one for one in self.attempts if one.round == round)

    @property
    def open_attempt(self) -> Attempt | None:
        """Return the last attempt if it has not ended."""
        return self.attempts[-1] if self.attempts and not self.attempts[-1].ended else None


def begun(row: Row) -> History:
    """Return the history that a header begins."""
    _check(row, HEADER, "a header")
    _check(row["terms"], TERMS, "the terms")
    if row["terms"]["records"] is not None:
        _check(row["terms"]["records"], RECORDS, "the terms of records")
    if row["version"] != VERSION:
        raise LedgerError(
            f"must be of version {VERSION}, found {row['version']}. Read it with the version of "
            "fedpareto that wrote it."
        )
    return History(row)


def followed(history: History, row: Row, tries: int | None = None) -> History:
    """Return the history after another row; refuse one that cannot follow.

    tries is how often the row's round was begun before, where it is known already.
    """
    kind = row.get("kind")
    if kind == "torn":
        _check(row, TORN, "a note of a torn row")
        return replace(history, torn=history.torn + 1)
    if kind != "round" or row.get("state") not in ("began", "ended"):
        raise LedgerError(f"must be the begin or the end of a round, found {shown(kind)}.")
    if row["state"] == "began":
        return _with_begin(history, row, tries)
    return _with_end(history, row)


class Reading:
    """A history that is read row by row, in the time that its rows take."""

    def __init__(self, header: Row) -> None:
        self._begun = begun(header)
        self._attempts: list[Attempt] = []
        self._tries: Counter[int] = Counter()
        self._torn = 0

    def take(self, row: Row) -> None:
        """Take another row; refuse one that cannot follow."""
        round = row.get("round")
        tries = self._tries[round] if isinstance(round, int) else 0
        last = tuple(self._attempts[-1:])
        after = followed(replace(self._begun, attempts=last), row, tries)
        self._torn += after.torn
        self._attempts[len(self._attempts) - len(last) :] = after.attempts
        if len(after.attempts) > len(last):
            self._tries[after.attempts[-1].round] += 1

    def history(self, last: str) -> History:
        """Return what was read; last is the hash of the last row."""
        return replace(self._begun, attempts=tuple(self._attempts), torn=self._torn, last=last)


def _with_begin(history: History, row: Row, tries: int | None) -> History:
    """Return the history with one attempt more."""
    _check(row, BEGAN, "the begin of a round")
    attempt = 1 + (len(history.attempts_of(row["round"])) if tries is None else tries)
    if row["attempt"] != attempt:
        raise LedgerError(f"attempt: must be {attempt}, found {row['attempt']}.")
    one = Attempt(row["round"], attempt, tuple(row["asked"]), row["norm"])
    return replace(history, attempts=(*history.attempts, one))


def _with_end(history: History, row: Row) -> History:
    """Return the history with its last attempt ended."""
    _check(row, ENDED, "the end of a round")
    one = history.open_attempt
    if one is None or (one.round, one.attempt) != (row["round"], row["attempt"]):
        raise LedgerError(
            f"round {row['round']}: only the attempt begun last may end, and once; found the end "
            f"of attempt {row['attempt']}."
        )
    _check_within("answered", row["answered"], "asked", one.asked)
    _check_within("again", row["again"], "answered", row["answered"])
    for name in ("noise", "record_noise"):
        if row[name] is not None and len(row[name]) != len(row["answered"]):
            raise LedgerError(
                f"{name}: must be one number for each of {len(row['answered'])} who answered, "
                f"found {len(row[name])}."
            )
    done = replace(
        one,
        ended=True,
        answered=tuple(row["answered"]),
        again=tuple(row["again"]),
        noise=_maybe_tuple(row["noise"]),
        record_noise=_maybe_tuple(row["record_noise"]),
        norm=row["norm"],
        divisor=row["divisor"],
        server_noise=row["server_noise"],
    )
    return replace(history, attempts=(*history.attempts[:-1], done))


def _maybe_tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


def _check_within(name: str, found: Any, of: str, whole: Any) -> None:
    """Refuse clients that are not among others."""
    known = set(whole)
    strange = [one for one in found if one not in known]
    if strange:
        raise LedgerError(f"{name}: must be among those {of}, found {shown(strange[0])}.")


def _check(row: Row, fields: Mapping[str, tuple[Callable[[Any], bool], str]], what: str) -> None:
    """Refuse a row with a field that is missing, unknown or of another kind."""
    for name in row:
        if name not in fields and name not in ALWAYS:
            raise LedgerError(f"{shown(name)}: must be a field of {what}, found one that is not.")
    for name, (holds, must) in fields.items():
        if name not in row:
            raise LedgerError(f"{name}: must be given in {what}, found nothing.")
        if not holds(row[name]):
            raise LedgerError(f"{name}: must be {must}, found {shown(row[name])}.")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _number(value: Any) -> bool:
    """Say whether a value is a finite number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < 1e300 and math.isfinite(value)


def _maybe_number(value: Any) -> bool:
    return value is None or _number(value)


def _numbers(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_number, value)))


def _id(value: Any) -> bool:
    return _whole(value) or (isinstance(value, str) and 0 < len(value) <= 200)


def _ids(value: Any) -> bool:
    """Say whether a value is a list of clients, each once."""
    if not isinstance(value, list) or not all(map(_id, value)):
        return False
    return len({(type(one), one) for one in value}) == len(value)


def _sha256(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _maybe_object(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _prices(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_maybe_number, value.values()))


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(_whole(v) and v > 0 for v in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


ALWAYS = ("kind", "before", "hash")
TIME = (_text, "a text")
NUMBER = (_maybe_number, "a finite number that is at least 0, or null")
NUMBERS = (_numbers, "finite numbers that are at least 0, or null")
WHOLE = (_whole, "a whole number that is at least 0")
IDS = (_ids, "a list of clients, by names or whole numbers, each once")
HEADER = {
    "version": WHOLE,
    "side": (lambda value: value in SIDES, "server or client"),
    "client": (lambda value: value is None or _id(value), "a name, a whole number or null"),
    "deployment": (_sha256, "64 hexadecimal digits"),
    "terms": (_object, "an object"),
    "planned": (_prices, "an object of numbers, by view"),
    "time": TIME,
}
TRUTH = (_truth, "true or false")
POSITIVE = (_positive, "a finite number above 0")
TERMS = {
    "clients": WHOLE,
    "cohort": POSITIVE,
    "rounds": WHOLE,
    "sampling": (lambda value: value in SAMPLINGS, f"one of {', '.join(SAMPLINGS)}"),
    "weighting": (lambda value: value in WEIGHTINGS, f"one of {', '.join(WEIGHTINGS)}"),
    "noise": NUMBER,
    "norm": NUMBER,
    "noise_last": TRUTH,
    "centred": TRUTH,
    "records": (_maybe_object, "an object or null"),
    "delta": POSITIVE,
    "unit": (_text, "a text"),
    "adjacency": (_text, "a text"),
    "dropouts": WHOLE,
    "colluders": WHOLE,
    "records_per_person": WHOLE,
}
RECORDS = {
    "noise": POSITIVE,
    "norm": POSITIVE,
    "batch": POSITIVE,
    "sizes": (_sizes, "whole numbers above 0"),
    "steps": WHOLE,
    "epochs": WHOLE,
    "batches": (lambda value: value in BATCHES, f"one of {', '.join(BATCHES)}"),
}
TORN = {"bytes": WHOLE, "time": TIME}
BEGAN = {
    "state": (_text, "a text"),
    "round": WHOLE,
    "attempt": WHOLE,
    "asked": IDS,
    "norm": NUMBER,
    "time": TIME,
}
ENDED = {
    "state": (_text, "a text"),
    "round": WHOLE,
    "attempt": WHOLE,
    "answered": IDS,
    "again": IDS,
    "noise": NUMBERS,
    "record_noise": NUMBERS,
    "norm": NUMBER,
    "divisor": NUMBER,
    "server_noise": (_number, "a finite number that is at least 0"),
    "time": TIME,
}
