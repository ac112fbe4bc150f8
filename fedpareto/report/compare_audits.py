"""What attacks found of each study's front, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fedpareto.report.audits import NO_PROOF, claim_words, measured, percent, short
from fedpareto.report.compare import Comparison, Group
from fedpareto.report.paper import Html, paragraph, section, table
from fedpareto.store import Audit

Attacked = tuple[int, Audit]  # the seed of a study, and what was found of a point
MOST: tuple[tuple[str, str, Callable[[Audit], str]], ...] = (  # heading, measure, in words
    ("canaries", "epsilon_hat", claim_words),
    ("AUC of records", "auc", lambda a: short(measured(a, "auc"))),
    ("AUC of clients", "client_auc", lambda a: short(measured(a, "client_auc"))),
    ("pictures", "psnr", lambda a: f"{short(measured(a, 'psnr'))} dB"),
    ("line-up", "lineup", lambda a: percent(measured(a, "lineup"))),
)


def audits_of(g: Group) -> list[Attacked]:
    """Return what attacks found of the points on a study's front, with the seed of each.

    Where no point is within the limits, it is of all that were attacked.
    """
    if not len(g.kept):
        return list(g.audits)
    every = map(g.found, g.kept.tolist())
    front = {_key(f.seed, f.trial.number, f.settings) for f in every}
    return [(s, a) for s, a in g.audits if _key(s, a.trial, a.settings) in front]


def _key(seed: int, trial: int, settings: Any) -> str:
    return json.dumps([seed, trial, settings], sort_keys=True)


def audits_data(g: Group) -> list[dict[str, Any]]:
    """Return what attacks found of a study's front as plain data."""
    return [
        {"seed": s, "trial": a.trial, "attack": a.attack, "view": a.view, "measures": a.measures}
        for s, a in audits_of(g)
    ]


def audits_section(found: Comparison) -> list[Html]:
    """Return the section of attacks; none where none of the studies was attacked."""
    of_each = [(g, audits_of(g)) for g in found.groups]
    if not any(attacked for _, attacked in of_each):
        return []
    rows = [_row(g, attacked) for g, attacked in of_each]
    heads = ("study", "points attacked", "alarms", *(heading for heading, _, _ in MOST))
    caption = "The most that was found of any point on the front; less tried, less found"
    words = paragraph(NO_PROOF, "note")
    return [section("What an attacker really gets", words, table(heads, rows, caption, "words"))]


def _row(g: Group, attacked: Sequence[Attacked]) -> list[str]:
    """Return how many points of a study were attacked, and the most that was found of any."""
    points = {_key(s, a.trial, a.settings) for s, a in attacked}
    alarms = str(sum(bool(a.measures.get("alarm")) for _, a in attacked))
    most = [_most(attacked, name, words) for _, name, words in MOST]
    share = f"{len(points)} of {len(g.kept)}" if len(g.kept) else str(len(points))
    return [g.label, share, alarms if points else "–", *most]


def _most(attacked: Sequence[Attacked], name: str, words: Callable[[Audit], str]) -> str:
    """Return the largest of one measure in words, and of which trial and view it is."""
    rows = [(v, a) for _, a in attacked for v in [measured(a, name)] if v is not None]
    if not rows:
        return "–"
    _, most = max(rows, key=lambda row: row[0])
    return f"{words(most)} (trial {most.trial}, {most.view})"
