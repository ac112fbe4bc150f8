"""What statistics of a canary's two worlds tell: ε̂, and what it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpareto.audit.bounds import Counted, by_fit, counted, normality, promising
from fedpareto.audit.sampled import Rounds, inverted
from fedpareto.space import FloatArray

UNLIKELY = 1e-6  # statistics that look normal so rarely are not taken for normal


def _of_two(confidence: float) -> float:
    """Return the confidence of each of two rules, of which the better is taken."""
    return 1 - (1 - confidence) / 2


def of_gaussians(scores: FloatArray, delta: float, confidence: float) -> dict[str, Any]:
    """Return ε̂ where the canary is in every round: the statistic [N,2] is Gaussian."""
    normal = normality(scores)
    counts = counted(scores, 0.0, _of_two(confidence))
    by_counts = max(c.gaussian(delta) for c in counts)
    fit = by_fit(scores, delta, confidence)
    is_normal = normal > UNLIKELY
    return {
        "epsilon_hat": fit if is_normal else by_counts,
        "form": "Gaussian fit" if is_normal else "counting",
        "epsilon_hat_fit": fit,
        "epsilon_hat_counting": by_counts,
        "normality": normal,
    }


def of_secret(
    scores: FloatArray, rounds: Rounds, claimed: float, delta: float, confidence: float
) -> dict[str, Any]:
    """Return ε̂ where taking part is secret: counts, and the noise that explains them.

    claimed is the noise that is stated on what rounds show.
    """
    roc = rounds.roc(claimed)
    right, wrong = roc.above()
    kept = np.unique(np.linspace(0, len(roc.losses) - 1, 4000).astype(int))
    best, plain = 0.0, 0.0
    for upward in (True, False):
        rates = (right[kept], wrong[kept]) if upward else (1 - wrong[kept], 1 - right[kept])
        place = promising(*_thinned(*rates), len(scores), confidence)
        edge = roc.losses[kept][_thinned_places(rates[1])[place]]
        found: Counted = counted(scores, float(edge), _of_two(confidence))[0 if upward else 1]
        best = max(best, inverted(rounds, found, upward, claimed, delta))
        plain = max(plain, found.plain(delta))
    return {
        "epsilon_hat": best,
        "form": "loss distribution",
        "epsilon_hat_counting": plain,
    }


def by_counting(scores: FloatArray, delta: float, confidence: float) -> dict[str, Any]:
    """Return ε̂ from counts alone, where either world is stated to be as likely."""
    counts = counted(scores, 0.0, _of_two(confidence))
    found = max(c.plain(delta) for c in counts)
    return {"epsilon_hat": found, "form": "counting", "epsilon_hat_counting": found}


def _thinned_places(wrong: FloatArray) -> list[int]:
    """Return about a hundred thresholds, evenly spread over the logarithm of being wrong."""
    logs = np.log10(np.clip(wrong, 1e-6, 1.0))
    spread = np.linspace(logs.min(), logs.max(), 120)
    return sorted({int(np.argmin(np.abs(logs - s))) for s in spread})


def _thinned(right: FloatArray, wrong: FloatArray) -> tuple[FloatArray, FloatArray]:
    places = _thinned_places(wrong)
    return right[places], wrong[places]
