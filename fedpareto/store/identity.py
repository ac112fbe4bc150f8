"""Which study a database is of, and how it differs from the one at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpareto.errors import ChangedStudy


def read_identity(text: str) -> dict[str, Any]:
    """Return a study's description from the JSON that a database holds."""
    stored: dict[str, Any] = json.loads(text)
    optimizer = stored.get("optimizer")
    if isinstance(optimizer, dict):
        optimizer.pop("stop_hopeless", None)  # a setting that is no more
    return stored


def seed_in(identity: Mapping[str, Any]) -> int | None:
    """Return the seed of a study by its description; None where it has no valid one."""
    seed = identity.get("seed")
    return seed if type(seed) is int and 0 <= seed < 2**63 else None


def check_same(path: Path, stored: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Refuse a study other than the one whose rows a database holds."""
    changed = differences(stored, json.loads(json.dumps(identity)))
    if changed:
        raise ChangedStudy(
            f"{path}: must belong to this study, "
            f"found one that differs in {'; '.join(changed)}. "
            "To continue that study, undo the change (the budget may change freely); "
            "to start the changed one beside it, name a new database with --db."
        )


def differences(stored: Any, found: Any, key: str = "") -> list[str]:
    """Return what differs between two descriptions of a study, each with its key."""
    if isinstance(stored, dict) and isinstance(found, dict):
        keys = [*stored, *(k for k in found if k not in stored)]
        inner = [differences(stored.get(k), found.get(k), f"{key}.{k}" if key else k) for k in keys]
        return [change for changes in inner for change in changes]
    return [] if stored == found else [f"{key} ({stored} there, {found} here)"]
