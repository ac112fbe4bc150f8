"""What attacks on points found, as rows and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = "trial, settings, attack, view, seed, options, measures, picture, version"
ALL = f"SELECT {COLUMNS} FROM audits ORDER BY rowid"
ADD = f"INSERT INTO audits ({COLUMNS}) VALUES ({', '.join('?' * len(COLUMNS.split()))})"


@dataclass(frozen=True)
class Audit:
    """What one attack on one point found."""

    trial: int
    settings: dict[str, Any]  # of the point
    attack: str
    view: str
    seed: int
    options: dict[str, Any]  # the settings of the attack
    measures: dict[str, Any]
    picture: bytes | None = None  # PNG
    version: str = ""


def audit_of(row: tuple[Any, ...]) -> Audit:
    """Return the audit that a row of the table holds."""
    trial, settings, attack, view, seed, options, measures, picture, version = row
    read = (json.loads(text) for text in (settings, options, measures))
    point, chosen, found = read
    return Audit(trial, point, attack, view, seed, chosen, found, picture, version)


def row_of(audit: Audit) -> tuple[Any, ...]:
    """Return an audit as a row of the table; a number that is not finite is null."""
    return (
        audit.trial,
        json.dumps(audit.settings),
        audit.attack,
        audit.view,
        audit.seed,
        json.dumps(audit.options),
        json.dumps(finite(audit.measures)),
        audit.picture,
        audit.version,
    )


def last_of(audits: Sequence[Audit]) -> list[Audit]:
    """Return the last audit of each attack and view on each point."""
    found = {json.dumps([a.trial, a.settings, a.attack, a.view], sort_keys=True): a for a in audits}
    return list(found.values())


def number(measures: Mapping[str, Any], name: str) -> float | None:
    """Return a number that an attack found; None where there is none, or something else.

    An attack of the user's own may call what it finds as it likes, and so may who edits a row.
    """
    found = measures.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:  # a whole number that no float can hold
        return None


def finite(value: Any) -> Any:
    """Return plain data with None for every number that is not finite."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def alarm_words(measures: Mapping[str, Any]) -> str:
    """Return why an attack raised an alarm; one of the user's own need not say."""
    if measures.get("why"):
        return str(measures["why"])
    if number(measures, "epsilon_hat") is None:
        return "the attack does not say why"
    return "ε̂ is above the claim, twice with fresh randomness"
