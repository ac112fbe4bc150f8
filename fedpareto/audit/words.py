"""What attacks found, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_PROOF = (
    "A failed attack proves nothing; ε̂ is a lower bound on what the mechanism leaks, and never an "
    "upper one."
)


def sentence(measures: Mapping[str, Any]) -> str:
    """Return what an attack found as one line."""
    said = [words(measures) for words in (_canary, _membership, _inversion, _noise)]
    parts = [text for text in said if text]
    if not parts:
        numbers = {n: v for n, v in measures.items() if isinstance(v, int | float)}
        parts = [", ".join(f"{name} {value:.4g}" for name, value in numbers.items())]
    alarm = " ALARM: " + _alarm(measures) if measures.get("alarm") else ""
    return "; ".join(parts) + alarm


def _canary(measures: Mapping[str, Any]) -> str:
    if "epsilon_hat" not in measures:
        return ""
    by = str(measures.get("form", ""))
    rests = {"Gaussian fit": "rests on normality", "loss distribution": "rests on its shape"}
    more = f"{by}, which {rests[by]}" if by in rests else by
    share = measures.get("confidence", 0.0)
    return (
        f"ε̂ {_number(measures['epsilon_hat'])} of ε {_number(measures.get('epsilon'))} "
        f"({measures.get('canaries', 0):,} canaries, {share:.4g} confidence; {more})"
    )


def _membership(measures: Mapping[str, Any]) -> str:
    if "auc" not in measures:
        return ""
    found = [_told(measures, "", "records")]
    if "client_auc" in measures:
        found.append(_told(measures, "client_", "clients"))
    return (
        f"{'; '.join(found)} ({measures.get('shadows', 0):,} shadows on half the data, test error "
        f"{_number(measures.get('shadow_error'))})"
    )


def _told(measures: Mapping[str, Any], prefix: str, what: str) -> str:
    """Say how well members are told."""
    return (
        f"{what} told with AUC {_number(measures[f'{prefix}auc'])}, "
        f"{100 * measures[f'{prefix}tpr_at_0.01']:.3g} % of them at 1 % false alarms"
    )


def _inversion(measures: Mapping[str, Any]) -> str:
    if "psnr" not in measures:
        return ""
    return (
        f"pictures at {_number(measures['psnr'])} dB, the mean image at "
        f"{_number(measures['psnr_of_mean'])} ({measures['form']}); "
        f"{100 * measures['label']:.3g} % of labels; {100 * measures['lineup']:.3g} % found among "
        f"{measures['candidates']:,} candidates, {100 * measures['lineup_chance']:.3g} % by chance"
    )


def _noise(measures: Mapping[str, Any]) -> str:
    if "strength" not in measures:
        return ""
    return (
        f"noise {_number(measures['strength'])} times as strong as stated, least likely of "
        f"{len(measures['chances'])} checks {measures['least']:.1g} ({measures['numbers']:,} "
        "numbers)"
    )


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:.4g}"


def _alarm(measures: Mapping[str, Any]) -> str:
    return str(measures.get("why") or "ε̂ is above the claim, twice with fresh randomness")
