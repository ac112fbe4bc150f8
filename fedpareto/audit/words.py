"""What attacks found, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpareto.store.audits import alarm_words, number

NO_PROOF = (
    "A failed attack proves nothing; ε̂ is a lower bound on what the mechanism leaks, and never an "
    "upper one."
)


def sentence(measures: Mapping[str, Any]) -> str:
    """Return what an attack found as one line; nothing is taken for granted of somebody's own."""
    if measures.get("without"):
        return str(measures["without"])
    said = [words(measures) for words in (_canary, _membership, _inversion, _noise)]
    parts = [text for text in said if text]
    if not parts:
        numbers = {name: number(measures, name) for name in measures}
        parts = [", ".join(f"{n} {_number(v)}" for n, v in numbers.items() if v is not None)]
    alarm = "ALARM: " + alarm_words(measures) if measures.get("alarm") else ""
    return " ".join(part for part in ("; ".join(parts) or "no numbers", alarm) if part)


def _canary(measures: Mapping[str, Any]) -> str:
    if number(measures, "epsilon_hat") is None:
        return ""
    by = str(measures.get("form", ""))
    rests = {"Gaussian fit": "rests on normality", "loss distribution": "rests on its shape"}
    more = f"{by}, which {rests[by]}" if by in rests else by
    return (
        f"ε̂ {_shown(measures, 'epsilon_hat')} of ε {_shown(measures, 'epsilon')} "
        f"({_count(measures, 'canaries')} canaries, {_shown(measures, 'confidence')} confidence; "
        f"{more})"
    )


def _membership(measures: Mapping[str, Any]) -> str:
    if number(measures, "auc") is None:
        return ""
    found = [_told(measures, "", "records")]
    if "client_auc" in measures:
        found.append(_told(measures, "client_", "clients"))
    return (
        f"{'; '.join(found)} ({_count(measures, 'shadows')} shadows on half the data, test error "
        f"{_shown(measures, 'shadow_error')})"
    )


def _told(measures: Mapping[str, Any], prefix: str, what: str) -> str:
    """Say how well members are told."""
    return (
        f"{what} told with AUC {_shown(measures, f'{prefix}auc')}, "
        f"{_percent(measures, f'{prefix}tpr_at_0.01')} of them at 1 % false alarms"
    )


def _inversion(measures: Mapping[str, Any]) -> str:
    if number(measures, "psnr") is None:
        return ""
    labels = f"{_percent(measures, 'label')} of labels; " if "label" in measures else ""
    return (
        f"pictures at {_shown(measures, 'psnr')} dB, the mean image at "
        f"{_shown(measures, 'psnr_of_mean')} ({measures.get('form', '')}); "
        f"{labels}{_percent(measures, 'lineup')} found among "
        f"{_count(measures, 'candidates')} candidates, {_percent(measures, 'lineup_chance')} by "
        "chance"
    )


def _noise(measures: Mapping[str, Any]) -> str:
    if number(measures, "strength") is None:
        return ""
    checks = measures.get("chances")
    return (
        f"noise {_shown(measures, 'strength')} times as strong as stated, least likely of "
        f"{len(checks) if isinstance(checks, Mapping) else 0} checks {_shown(measures, 'least')} "
        f"({_count(measures, 'numbers')} numbers)"
    )


def _shown(measures: Mapping[str, Any], name: str) -> str:
    return _number(number(measures, name))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _percent(measures: Mapping[str, Any], name: str) -> str:
    value = number(measures, name)
    return "none" if value is None else f"{100 * value:.3g} %"


def _count(measures: Mapping[str, Any], name: str) -> str:
    return f"{number(measures, name) or 0:,.0f}"
