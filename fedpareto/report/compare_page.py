"""A comparison of studies as one html page.

It shows hypervolumes, fronts, the best under each limit, where fronts end, and what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.files import write_again
from fedpareto.front import nondominated
from fedpareto.report.compare import Comparison, Group
from fedpareto.report.compare_audits import audits_section
from fedpareto.report.compare_limits import best_sections, ends_section, heading
from fedpareto.report.compare_output import HEADINGS, comparison_rows
from fedpareto.report.paper import Html, bullets, paragraph, section, sheet, table
from fedpareto.report.svg import Series, chart, figure, legend
from fedpareto.report.text import shown
from fedpareto.space import FloatArray
from fedpareto.words import short

MOST_DIFFERENCES = 40


def comparison_page(found: Comparison) -> str:
    """Return the comparison as one page of html that needs no script and no network."""
    count = len(found.groups)
    names = ", ".join(o.name for o in found.objectives)
    parts = [
        paragraph(
            f"{count} stud{'ies' if count > 1 else 'y'} with the "
            f"objectives {names}, all to be small.",
            "note",
        ),
        *(paragraph(line, "beware") for line in beware(found)),
        _hypervolume(found),
        _fronts(found),
        *best_sections(found),
        *audits_section(found),
        ends_section(found),
        _differences(found),
    ]
    return sheet(_title(found), "".join(parts))


def _title(found: Comparison) -> str:
    if len(found.mechanisms) > 1:
        return f"Mechanisms compared: {' and '.join(found.mechanisms)}"
    return f"Studies compared: {', '.join(g.label for g in found.groups)}"


def write_comparison(found: Comparison, path: Path) -> Path:
    """Write the page and return its path."""
    write_again(path, comparison_page(found).encode(), "page")
    return path


def beware(found: Comparison) -> list[str]:
    """Return what must not be compared as it stands, in sentences."""
    lines = []
    for j, o in enumerate(found.objectives):
        measures = sorted({g.objectives[j].measure for g in found.groups})
        if o.proxy and (len(found.mechanisms) > 1 or len(measures) > 1):
            lines.append(
                f"{o.name} is a proxy ({', '.join(measures)}), and every mechanism has a scale of "
                f"its own: 0.5 of one is not 0.5 of another. Neither fronts along {o.name} nor "
                "hypervolumes that count it rank mechanisms; the true ε does."
            )
        elif o.proxy:
            lines += _constants(found, j)
        limits = sorted({str(g.objectives[j].limit) for g in found.groups})
        if len(limits) > 1:
            lines.append(
                f"The limit of {o.name} is not the same in all studies: {', '.join(limits)}."
            )
    if len({json.dumps(g.identity.get("limits", []), sort_keys=True) for g in found.groups}) > 1:
        lines.append(
            "The studies have different limits beside their objectives: see limits under what "
            "differs."
        )
    if any(g.identity.get("privacy", {}).get("private_data") for g in found.groups):
        lines.append(
            "A study here trained on private data: each ε is that of one training alone. What its "
            "whole search costs, the chosen model included, `fedpareto front` of it says."
        )
    if len({json.dumps(_terms(g), sort_keys=True) for g in found.groups}) > 1:
        lines.append(
            "The studies promise on different terms, so their ε are not about the same thing: see "
            "clients and privacy under what differs."
        )
    return lines


def _constants(found: Comparison, j: int) -> list[str]:
    """Say that an objective, a proxy of one mechanism, has other constants in each study."""
    scales = sorted({", ".join(g.scale(j)[2:]) for g in found.groups})
    if len(scales) == 1:
        return []
    name = found.objectives[j].name
    return [
        f"{name} is a proxy, and its constants are not the same in all studies: "
        f"{'; '.join(scales)}. Neither fronts along {name} nor hypervolumes that count it rank "
        "them."
    ]


def _terms(g: Group) -> dict[str, Any]:
    """Return the settings of a study that say what its ε is about."""
    privacy = g.identity.get("privacy", {})
    names = ("target_delta", "unit", "adjacency", "dropouts", "colluders")
    clients = g.identity.get("data", {}).get("clients")
    return {"clients": clients, **{name: privacy.get(name) for name in names}}


def _hypervolume(found: Comparison) -> Html:
    """Return the section with the hypervolume of each study, as a chart and as a table."""
    series = [_curve(g, i) for i, g in enumerate(found.groups)]
    corner = ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    what = f"hypervolume over evaluations of {len(series)} studies"
    drawn = chart(series, "evaluations", "hypervolume", what, zero=True)
    caption = f"Up to the reference point {corner}; mean and standard deviation over seeds."
    return section(
        "Hypervolume over evaluations",
        figure(legend(series) + drawn, caption),
        table(HEADINGS, comparison_rows(found)),
    )


def _curve(g: Group, i: int) -> Series:
    """Return the hypervolume of study i, with its spread over seeds if it has several."""
    mean = g.curves.mean(0)
    n = list(range(1, g.curves.shape[1] + 1))
    band = None
    if len(g.seeds) > 1:
        spread = g.curves.std(0, ddof=1)
        band = (list(mean - spread), list(mean + spread))
    return Series(g.label, n, list(map(float, mean)), i, line="step", marks=False, band=band)


def _fronts(found: Comparison) -> Html:
    """Return the fronts on the first two objectives, one chart for each budget of the third."""
    if len(found.objectives) < 2:
        return Html("")
    fronts = [g.front for g in found.groups]
    series = [_series(found, i, front) for i, front in enumerate(fronts)]
    panels = [_panel(found, fronts, budget) for budget in _budgets(found, np.vstack(fronts))]
    words = "Of all seeds together, within each study's own limits. Low and left is better."
    if len(found.objectives) > 2:
        words += f" One picture for each budget of {found.objectives[2].name}."
    pictures = panels[0]
    if len(panels) > 1:
        pictures = Html(f'<div class="panels">{"".join(panels)}</div>\n')
    return section("Fronts", paragraph(words, "note"), legend(series), pictures)


def _budgets(found: Comparison, front: FloatArray) -> list[float | None]:
    """Return three budgets of the third objective, or None if there is no third."""
    if len(found.objectives) < 3 or not len(front):
        return [None]
    return [float(v) for v in sorted(set(np.quantile(front[:, 2], [0.33, 0.67, 1.0])))]


def _panel(found: Comparison, fronts: list[FloatArray], budget: float | None) -> Html:
    """Return a chart of the fronts within a budget of the third objective, on common axes."""
    everything = np.vstack(fronts)
    spans = (list(map(float, everything[:, 1])), list(map(float, everything[:, 0])))
    caption = ""
    if budget is not None:
        third = found.objectives[2]
        caption = f"{third.name} ≤ {shown(third, budget)}"
        fronts = [y[y[:, 2] <= budget] for y in fronts]
    drawn = [_series(found, i, y[nondominated(y[:, :2])]) for i, y in enumerate(fronts)]
    what = (
        f"fronts of {len(fronts)} studies: {found.objectives[0].name} against "
        f"{found.objectives[1].name}"
    )
    picture = chart(drawn, heading(found, 1), heading(found, 0), what, spans=spans)
    return figure(picture, caption)


def _series(found: Comparison, i: int, y: FloatArray) -> Series:
    """Return points y [n,m] of study i, from left to right, each with its objectives in words."""
    y = y[np.argsort(y[:, 1], kind="stable")]
    label = found.groups[i].label
    words = []
    for row in y:
        values = [f"{o.name} {shown(o, v)}" for o, v in zip(found.objectives, row, strict=True)]
        words.append(f"{label}: {', '.join(values)}")
    return Series(label, list(map(float, y[:, 1])), list(map(float, y[:, 0])), i, words, "step")


def _differences(found: Comparison) -> Html:
    """Return a table of the keys in which the study files differ."""
    flat = [_flat(g.identity) for g in found.groups]
    every = dict.fromkeys(key for keys in flat for key in keys)  # in order, each once
    differing = [key for key in every if _differs(key, flat)]
    if not differing:
        return Html("")
    more = []
    if len(differing) > MOST_DIFFERENCES:
        more = [f"and {len(differing) - MOST_DIFFERENCES} more"]
    rows = [
        [key, *(_shown(keys.get(key)) for keys in flat)] for key in differing[:MOST_DIFFERENCES]
    ]
    return section(
        "What differs between the studies",
        table(("key", *(g.label for g in found.groups)), rows, kind="words"),
        bullets(more),
    )


def _differs(key: str, flat: list[dict[str, Any]]) -> bool:
    return len({json.dumps(keys.get(key), sort_keys=True) for keys in flat}) > 1


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Return a nested table as dotted keys; a range stays whole."""
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        value = {str(v.get("name", i)): v for i, v in enumerate(value, 1)}
    if not isinstance(value, Mapping) or {"low", "choices"} & set(value):
        return {key: value}
    prefix = f"{key}." if key else ""
    out: dict[str, Any] = {}
    for name, inner in value.items():
        out |= _flat(inner, f"{prefix}{name}")
    return out


def _shown(value: Any) -> str:
    """Return a value of a study file as text; a range says that it is one."""
    if value is None:
        return "–"
    if isinstance(value, Mapping) and "low" in value:
        scale = ", log" if value.get("log") else ""
        return f"{short(value['low'])} to {short(value['high'])}{scale}"
    if isinstance(value, Mapping) and "choices" in value:
        return "one of " + ", ".join(map(str, value["choices"]))
    return str(value)
