"""Tables of a comparison: the best that each study reaches under each limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpareto.report.compare import Comparison, Group
from fedpareto.report.paper import Html, cell, paragraph, section, table
from fedpareto.report.privacy import SEEN_BY, epsilon_text
from fedpareto.report.text import shown
from fedpareto.space import FloatArray

LEVELS = 6  # of a limit


def heading(found: Comparison, j: int) -> str:
    """Return the name of an objective, marked if it is a proxy."""
    o = found.objectives[j]
    if o.proxy:
        return f"{o.name} (proxy)"
    return o.name


def best_sections(found: Comparison) -> list[Html]:
    """Return sections with the least of the first objective under limits on the others.

    There is one for each objective that has a limit, or for all but the first if none has; and one
    for the true ε unless it is an objective.
    """
    others = range(1, len(found.objectives))
    limited = [j for j in others if any(g.objectives[j].limit is not None for g in found.groups)]
    return [_best(found, j) for j in limited or others] + _by_epsilon(found)


def _best(found: Comparison, j: int) -> Html:
    """Return the section for limits on objective j."""
    o = found.objectives[j]
    columns = [g.y[:, j] for g in found.groups]
    fair = not o.proxy or len({g.scale(j) for g in found.groups}) == 1
    words = "Each study's own limits hold as well."
    if not fair:
        of = "different mechanisms" if len(found.mechanisms) > 1 else "different constants"
        words += f" {o.name} is a proxy on scales of {of}: read along a column, not across."
    return section(
        f"The least {found.objectives[0].name} for each limit on {heading(found, j)}",
        paragraph(words, "note"),
        _limit_table(found, o.name, columns, _levels(columns), fair),
    )


def _by_epsilon(found: Comparison) -> list[Html]:
    """Return the section for limits on the true ε; none if ε is an objective."""
    if _epsilon_is_objective(found):
        return []
    view = _view(found)
    columns = [g.epsilons(view) for g in found.groups]
    pairs = zip(found.groups, columns, strict=True)
    without = [g.label for g, epsilons in pairs if not np.isfinite(epsilons).any()]
    nothing = ""
    if without:
        nothing = f"No true ε is promised by {', '.join(without)}: without noise, nothing is."
    title = f"The least {found.objectives[0].name} for each true ε"
    if len(without) == len(found.groups):
        return [section(title, paragraph(nothing))]
    words = (
        f"For {SEEN_BY[view]} (view {view}). This scale means the same for every mechanism. What a "
        f"run showed on its way counts with the ε of the whole run, which is no less. {nothing}"
    )
    levels = _levels(columns, most=100.0)
    rows = _limit_table(found, "true ε", columns, levels, fair=True)
    return [section(title, paragraph(words, "note"), rows)]


def _epsilon_is_objective(found: Comparison) -> bool:
    return any(o.measure.startswith("epsilon") for o in found.objectives)


def _view(found: Comparison) -> str:
    """Return whose view the true ε is for: the studies' own if they agree, else the server's."""
    views = {str(g.identity.get("privacy", {}).get("view", "server")) for g in found.groups}
    if len(views) == 1:
        return views.pop()
    return "server"


def _levels(columns: Sequence[FloatArray], most: float = math.inf) -> list[float]:
    """Return some limits between the least and the largest value, rounded up to two digits.

    Values above `most` mean little and are not reached unless all values are large.
    """
    values = np.concatenate([c[np.isfinite(c)] for c in columns])
    if not len(values):
        return []
    low = float(values.min())
    high = min(max(most, 10 * low), float(values.max()))
    if low > 0 and high / low > 100:
        steps = np.geomspace(low, high, LEVELS)
    else:
        steps = np.linspace(low, high, LEVELS)
    return sorted({_rounded_up(float(v)) for v in steps})


def _rounded_up(value: float, digits: int = 2) -> float:
    if value <= 0:
        return value
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return float(f"{math.ceil(value * scale - 1e-9) / scale:.12g}")


def _limit_table(
    found: Comparison, name: str, columns: Sequence[FloatArray], levels: Sequence[float], fair: bool
) -> Html:
    """Return what each study reaches under each limit; the best stands out if that is fair."""
    groups = found.groups
    rows = []
    for level in levels:
        chosen = [_least(g, column <= level) for g, column in zip(groups, columns, strict=True)]
        values = [_first_objective(g, row) for g, row in zip(groups, chosen, strict=True)]
        line: list[Any] = [f"≤ {level:g}"]
        for g, row, value in zip(groups, chosen, values, strict=True):
            best = fair and len(values) > 1 and value == min(values) < math.inf
            line.append(_point(found, g, row, best))
        rows.append(line)
    return table((name, *(g.label for g in groups)), rows)


def _least(g: Group, holds: Any) -> int | None:
    """Return the row that holds with the least first objective; the other objectives break ties."""
    rows = np.flatnonzero(holds)
    if not len(rows):
        return None
    return int(rows[np.lexsort(g.y[rows].T[::-1])[0]])


def _first_objective(g: Group, row: int | None) -> float:
    """Return the first objective of a row; infinity for no row."""
    if row is None:
        return math.inf
    return float(g.y[row, 0])


def _point(found: Comparison, g: Group, row: int | None, best: bool) -> Html:
    """Return a cell with the first objective of a row; the rest of the row stands below it."""
    if row is None:
        return cell("–")
    at = g.found(row)
    pairs = list(zip(found.objectives, at.values, strict=True))
    rest = [f"{o.name} {shown(o, v)}" for o, v in pairs[1:]]
    whose = f"trial {at.trial.number}"
    if len(g.seeds) > 1:
        whose += f" of seed {at.seed}"
    rounds = g.rounds[row]
    if rounds:
        whose += f" after {rounds} round{'s' if rounds > 1 else ''}"
    below = ", ".join([*rest, *_epsilon(found, g, row), whose])
    return cell(shown(found.objectives[0], at.values[0]), below, best)


def _epsilon(found: Comparison, g: Group, row: int) -> list[str]:
    """Return the true ε of a row in words, unless it is an objective and so shown already."""
    if _epsilon_is_objective(found):
        return []
    stated = epsilon_text(float(g.epsilons(_view(found))[row]))
    if g.rounds[row] and stated != "none":
        return [f"true ε ≤ {stated}"]
    return [f"true ε {stated}"]


def ends_section(found: Comparison) -> Html:
    """Return the least of each objective that each front reaches, and what it costs there."""
    rows = []
    for g in found.groups:
        cells = [_end(found, g, j) for j in range(len(found.objectives))]
        rows.append([f"{g.label}: {g.mechanism}", *cells])
    least = [f"least {heading(found, j)}" for j in range(len(found.objectives))]
    return section(
        "Where each front ends",
        paragraph(
            "The least of each objective that a study reached within its limits, and what the "
            "others are there. Beyond these ends it has nothing to offer.",
            "note",
        ),
        table(("study and mechanism", *least), rows),
    )


def _end(found: Comparison, g: Group, j: int) -> str:
    """Return a cell with the least of objective j on a study's front."""
    if not len(g.kept):
        return "nothing within the limits"
    row = int(min(g.kept, key=lambda i: (g.y[i, j], *g.y[i])))
    at = g.found(row)
    words = [f"{o.name} {shown(o, v)}" for o, v in zip(found.objectives, at.values, strict=True)]
    del words[j]
    below = ", ".join([*words, *_epsilon(found, g, row), f"trial {at.trial.number}"])
    return cell(shown(found.objectives[j], at.values[j]), below)
