"""Run the studies of a figure or table, and write what they say beside what the paper says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import tomlkit

import fedpareto
from fedpareto.errors import SettingError
from fedpareto.files import folder_of_examples, write_whole
from fedpareto.loop import run
from fedpareto.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, save
from fedpareto.report.progress import progress
from fedpareto.reproduce.experiment import Experiment, Found, Part, Rows, verdict_of
from fedpareto.study import Study, load_study

ROOT = Path(fedpareto.__file__).parents[1]
STUDIES = folder_of_examples() / "papers"
RESULTS = ROOT / "benchmarks" / "results" / "papers"
COLOURS = (BLUE, ORANGE, PURPLE, GREY)


def changes_of(part: Part, scale: str) -> dict[str, Any]:
    """Return what a scale changes in the study file of a part."""
    quick = part.quick if scale == "quick" else None
    return {**part.changes, **(quick or {})}


def study_of(part: Part, scale: str, folder: Path) -> Study:
    """Write the study file of a part into a folder, and load it."""
    source = STUDIES / part.file
    if not source.is_file():
        raise SettingError(
            f"reproduce: needs the study files of the source, found no {source}. Clone the "
            "repository and install it from there."
        )
    document: Any = tomlkit.parse(source.read_text(encoding="utf-8"))
    for key, value in changes_of(part, scale).items():
        *sections, last = key.split(".")
        table = document
        for section in sections:
            table = table[section]
        table[last] = value
    path = folder / f"{part.name}.toml"
    write_whole(path, tomlkit.dumps(document).encode())
    return load_study(path)


def rows_of(study: Study) -> Rows:
    """Run a study to its budget, from wherever its rows stand, and return its rows."""
    with progress(study) as watch:
        store = run(study, watch=watch)
    with store:
        trials = store.trials()
        losses = {
            t.number: [c["test_loss"] for c in store.repeat_curves(t.number)]
            for t in trials
            if t.state == "done" and "test_loss" in t.curves
        }
        return Rows(study, trials, losses, store.seconds())


def reproduce(experiment: Experiment, scale: str, folder: Path) -> dict[str, Any]:
    """Run an experiment and write its figure and numbers into a folder; return the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {p.name: rows_of(study_of(p, scale, folder)) for p in experiment.at(scale)}
    found = experiment.report(rows)
    figure = save(_draw, found, folder / f"{experiment.name}.png")
    result = {
        "name": experiment.name,
        "title": experiment.title,
        "scale": scale,
        "left_out": experiment.left_out,
        "smaller": smaller(experiment, scale),
        "verdict": verdict_of(found.comparisons),
        "paragraph": paragraph(found, scale),
        "comparisons": [dataclasses.asdict(c) for c in found.comparisons],
        "figure": figure.name,
        "panels": [dataclasses.asdict(p) for p in found.panels],
        "studies": [
            {
                "name": p.name,
                "file": f"examples/papers/{p.file}",
                "changes": changes_of(p, scale),
                "trials": len(rows[p.name].trials),
                "seconds": round(rows[p.name].seconds, 1),
            }
            for p in experiment.at(scale)
        ],
    }
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / f"{experiment.name}.json", text.encode())
    return result


def smaller(experiment: Experiment, scale: str) -> str:
    """Return in words what the quick scale changes; nothing at the paper's own."""
    changed: dict[str, None] = {}
    for part in experiment.at(scale) if scale == "quick" else ():
        for key, value in (part.quick or {}).items():
            changed[f"{key} = {json.dumps(value)}"] = None
    return ", ".join(changed)


def paragraph(found: Found, scale: str) -> str:
    """Return in words what agrees, differs and is open, and why."""
    counts = {v: sum(c.verdict == v for c in found.comparisons) for v in ("agrees", "differs")}
    head = (
        f"At {scale} scale {counts['agrees']} of {len(found.comparisons)} statements agree and "
        f"{counts['differs']} differ."
    )
    return " ".join([head, *(c.why for c in found.comparisons)])


def committed(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return the committed result of a name; None where there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _draw(axes: Any, found: Found) -> None:
    """Draw the panels of an experiment over one another: the paper's in green, ours beside it."""
    place = 0
    for panel in found.panels:
        for line in panel.lines:
            colour = GREEN if line.of == "paper" else COLOURS[place % len(COLOURS)]
            place += line.of == "ours"
            label = line.label if len(found.panels) == 1 else f"{panel.title}: {line.label}"
            if line.style == "points":
                axes.scatter(line.x, line.y, s=14, color=colour, label=label)
            else:
                axes.plot(line.x, line.y, color=colour, label=label)
    first = found.panels[0]
    axes.set(xlabel=first.x, ylabel=first.y)
    if first.log:
        axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize=7)
