"""What attacks on points found, as numbers and in words: for the evidence, `front` and `compare`.

An attack may be anybody's, so nothing is taken for granted of what it measured.
"""

from __future__ import annotations

import json
from typing import Any

from fedpareto.privacy import rounded_up
from fedpareto.report.choose import Point
from fedpareto.report.points import View
from fedpareto.store import Audit
from fedpareto.store.audits import alarm_words, number

NO_PROOF = (
    "A failed attack proves nothing: a better one may succeed. An ε̂ is a lower bound on what the "
    "mechanism leaks, never an upper one; what is promised is the ε."
)


def audits_of(seen: View, point: Point) -> list[Audit]:
    """Return what attacks found of a point."""
    return [a for a in seen.audits if (a.trial, a.settings) == (point.trial, _plain(point))]


def _plain(point: Point) -> Any:
    return json.loads(json.dumps(point.settings))


def as_data(seen: View, point: Point) -> list[dict[str, Any]]:
    """Return what attacks found of a point as plain data; pictures stay in the database."""
    return [
        {"attack": a.attack, "view": a.view, "seed": a.seed, "measures": a.measures}
        for a in audits_of(seen, point)
    ]


def measured(a: Audit, name: str) -> float | None:
    """Return a measure that is a number; None for anything else."""
    return number(a.measures, name)


def gain(a: Audit) -> float | None:
    """Return by how many dB pictures are nearer than the mean image, which needs no upload.

    What is no nearer is worth as much as that image, however far it is.
    """
    near, plain = measured(a, "psnr"), measured(a, "psnr_of_mean")
    return None if near is None else max(0.0, near - (plain or 0.0))


def outdone(a: Audit) -> float | None:
    """Return the share of a line-up that fits less well than the true image; 0.5 is chance."""
    place, candidates = measured(a, "lineup_place"), measured(a, "candidates")
    if place is None or candidates is None or candidates < 2:
        return None
    return 1 - place / (candidates - 1)


def claim_of(a: Audit) -> tuple[float, float] | None:
    """Return the ε that is claimed and the ε̂ that was shown of it; None without both."""
    claim, shown = measured(a, "epsilon"), measured(a, "epsilon_hat")
    return None if claim is None or shown is None else (claim, shown)


def claim_words(a: Audit) -> str:
    """Return how much of a claim was shown, in words."""
    claim, shown = claim_of(a) or (0.0, 0.0)
    return f"ε̂ {shown:.4g} of ε {rounded_up(claim)}"


def lines(seen: View, point: Point | None) -> list[str]:
    """Return what attacks found of a point, a line each, for the file."""
    if point is None:
        return []
    found = []
    for a in audits_of(seen, point):
        alarm = (
            f". ALARM, found twice: {alarm_words(a.measures)}" if a.measures.get("alarm") else ""
        )
        found.append(
            f"{a.attack}, {a.view}: {_found(a)}{alarm} (fedpareto {a.version}, seed {a.seed})"
        )
    return [*found, NO_PROOF] if found else []


def _found(a: Audit) -> str:
    """Return what one attack found, in words."""
    if a.measures.get("without"):
        return str(a.measures["without"])
    if claim_of(a):
        canaries = measured(a, "canaries") or 0
        sure = percent(measured(a, "confidence"))
        return f"{claim_words(a)}, {canaries:,.0f} canaries, {sure} confidence"
    if measured(a, "auc") is not None:
        clients = measured(a, "client_auc")
        more = f", clients {short(clients)}" if clients is not None else ""
        return f"records told with AUC {short(measured(a, 'auc'))}{more}"
    if measured(a, "psnr") is not None:
        mean = short(measured(a, "psnr_of_mean"))
        return f"pictures at {short(measured(a, 'psnr'))} dB, the mean image at {mean}"
    if measured(a, "least") is not None:
        return f"least likely of its checks {short(measured(a, 'least'))}"
    numbers = [(name, measured(a, name)) for name in a.measures]
    return ", ".join(f"{name} {short(value)}" for name, value in numbers if value is not None)


def short(value: float | None) -> str:
    """Return a number in three digits."""
    return "–" if value is None else f"{value:.3g}"


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return "–" if value is None else f"{100 * value:.4g} %"
