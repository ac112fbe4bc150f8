"""Membership: can somebody tell whether a record, or a client, was trained on?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedpareto.audit.base import ENCRYPTED, TRAINS, Finding, Points
from fedpareto.audit.lira import likelihood_ratios, told
from fedpareto.audit.shadows import Shown, shadows
from fedpareto.noise import derive
from fedpareto.settings import check_fields, setting

LEAST = 16  # shadows of which something can be said
PILOT = 2  # shadows that are timed beforehand


@dataclass(frozen=True)
class Membership:
    """Train shadows without half of the records or clients; tell which by likelihoods (LiRA)."""

    shadows: int = setting(
        96,
        help="federations that are trained of each point, once without half of the records and "
        "once without half of the clients",
        at_least=LEAST,
        at_most=100_000,
        search=False,
    )
    records: int = setting(
        2000,
        help="training records that are told apart, at the most",
        at_least=10,
        at_most=1_000_000,
        search=False,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def inapplicable(self, points: Points, view: str) -> str | None:
        """Return why there is nothing to tell members by."""
        if points.problem.private:
            return TRAINS
        return ENCRYPTED if view == "server" and points.encrypted else None

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes, from two shadows."""
        seeds = [derive(0, "timing", i) for i in range(PILOT + 1)]
        shadows(points, seeds[:1], 0, "record", view, 100)  # what is done once takes no part
        began = time.perf_counter()
        shadows(points, seeds[1:], 0, "record", view, self.records)
        return len(levels(view)) * self.shadows * (time.perf_counter() - began) / PILOT

    def within(self, share: float) -> Membership:
        return replace(self, shadows=max(LEAST, int(self.shadows * share)))

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Tell members of each point, record by record and client by client."""
        seeds = [derive(seed, "shadow", view, i) for i in range(self.shadows)]
        found = {of: shadows(points, seeds, seed, of, view, self.records) for of in levels(view)}
        return [Finding(self._measures(found, i)) for i in range(len(points))]

    def _measures(self, found: Mapping[str, Shown], point: int) -> dict[str, Any]:
        """Return how well members of one point are told, by records and by clients."""
        of_records = found["record"]
        measures = _of(of_records, point)
        if "client" in found:
            of_clients = _of(found["client"], point)
            measures |= {f"client_{name}": value for name, value in of_clients.items()}
        return measures | {
            "shadows": self.shadows,
            "records": of_records.seen.shape[2],
            "shadow_error": float(of_records.error[point]),
        }


def levels(view: str) -> tuple[str, ...]:
    """Return what is told apart: who takes part is a secret of those alone who see models."""
    return ("record", "client") if view == "release" else ("record",)


def _of(shown: Shown, point: int) -> dict[str, Any]:
    """Return how well members of one point are told."""
    return told(likelihood_ratios(shown.seen[point], shown.member), shown.member)
