"""Kang 2023, 6.4: what the front of randomization says, and what its leakage is in true ε.

The leakage ranks settings as the true ε does if their rank correlation is at least 0.9. Leakage 0
agrees with "no leakage" if some setting with it has a true ε of at most 10.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Rows, shown
from fedpareto.reproduce.judge import missing
from fedpareto.reproduce.races import FIG3
from fedpareto.space import FloatArray

ALIKE = 0.9
SMALL = 10.0


def mechanisms(rows: Mapping[str, Rows]) -> Found:
    """Report 6.4 for randomization."""
    done = [t.measures for r in rows.values() for t in r.trials if t.state == "done"]
    kept = [m for m in done if np.isfinite(m["epsilon_server"])]  # no noise has no ε
    leakage = np.array([m["kang23_eq13"] for m in kept])
    epsilon = np.array([m["epsilon_server"] for m in kept])
    points = Line("settings tried", leakage.tolist(), epsilon.tolist(), "points")
    axes = ("leakage, Eq. 13", "true ε, each upload seen")
    panel = Panel("randomization", *axes, (points,))
    return Found((_ranked(leakage, epsilon), _at_zero(leakage, epsilon)), (panel,))


def _ranked(leakage: FloatArray, epsilon: FloatArray) -> Comparison:
    from scipy.stats import spearmanr

    what = "Eq. 13 ranks settings as the true ε does"
    if len(leakage) < 3 or np.ptp(leakage) == 0:
        return missing(what, "a measure of leakage", "Eq. 13", "too few settings differ.")
    found = float(spearmanr(leakage, epsilon).statistic)
    said = f"Spearman {found:.2f} over {len(leakage)} settings"
    why = f"{what}: the rank correlation is {found:.2f}, where {ALIKE} is asked for."
    verdict = "agrees" if found >= ALIKE else "differs"
    return Comparison(what, "a measure of leakage", "Eq. 13", said, verdict, why)


def _at_zero(leakage: FloatArray, epsilon: FloatArray) -> Comparison:
    what = "leakage 0 is no leakage"
    at = epsilon[leakage == 0]
    if len(at) == 0:
        return missing(what, "0", "Eq. 13", "no setting has leakage 0.")
    said = f"true ε from {shown(float(at.min()))} to {shown(float(at.max()))}"
    why = f"{what}: settings with it have a {said} if the server sees each upload."
    verdict = "agrees" if at.min() <= SMALL else "differs"
    return Comparison(what, "0", "Eq. 13", said, verdict, why)


EXPERIMENTS = (
    Experiment(
        "kang23-mechanisms", "what leakage is worth", "BC and SF; their fronts", FIG3, mechanisms
    ),
)
