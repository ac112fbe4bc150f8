"""Run the studies of figures and tables, and write what they say beside what the paper says."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

import fedpareto
from fedpareto.errors import SettingError
from fedpareto.files import check_output, folder_of_examples, write_again, write_whole
from fedpareto.loop import database
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Part, Rows, verdict_of
from fedpareto.reproduce.figure import panels_of, write_figure
from fedpareto.reproduce.small import FEW, write_few
from fedpareto.reproduce.workers import Work, train
from fedpareto.store import Store
from fedpareto.study import Study, load_study

ROOT = Path(fedpareto.__file__).parents[1]
STUDIES = folder_of_examples() / "papers"
RESULTS = ROOT / "benchmarks" / "results" / "papers"
UNBEGUN = "it was not run."  # ends the reason of such a comparison
NOT_RUN = "–"  # of ours
DIGITS = 5  # of a number in a figure


def changes_of(part: Part, scale: str) -> dict[str, Any]:
    """Return what a scale changes in the study file of a part."""
    quick = part.quick if scale == "quick" else None
    return {**part.changes, **(quick or {})}


def write_study(part: Part, scale: str, folder: Path) -> Path:
    """Write the study file of a part into a folder, and return its path."""
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
            table = table[int(section) if section.isdigit() else section]
        table[last] = value
    path = folder / f"{part.name}.toml"
    text = tomlkit.dumps(document)
    _check_same(path, text)
    write_whole(path, text.encode())
    return path


def _check_same(path: Path, text: str) -> None:
    """Refuse to write over a study file that someone changed; a budget may be another one."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except ValueError:
        found = {}
    meant = tomllib.loads(text)
    if found | {"budget": 0} != meant | {"budget": 0}:
        raise SettingError(
            f"--output: {path} must be the study file that is written there, found another, which "
            "would be lost. Move it away, or name another folder."
        )


def _check_outputs(experiments: Sequence[Experiment], folder: Path) -> None:
    """Refuse a folder in which files of other kinds lie where figures and numbers go."""
    for experiment in experiments:
        for kind, end in (("picture", "png"), ("result", "json")):
            check_output(folder / f"{experiment.name}.{end}", kind, {})


def study_of(part: Part, scale: str, folder: Path) -> Study:
    """Write the study file of a part into a folder, and load it."""
    return load_study(write_study(part, scale, folder))


def work_of(experiments: Sequence[Experiment], scale: str, folder: Path) -> list[Work]:
    """Write the study files of experiments, each once, and say what there is to train."""
    folder.mkdir(parents=True, exist_ok=True)
    _check_outputs(experiments, folder)
    parts = {p.name: p for e in experiments for p in e.at(scale)}
    path = {name: write_study(part, scale, folder) for name, part in parts.items()}
    return [
        Work(path[name], part.seconds.get(scale, 1.0), path.get(part.after))
        for name, part in parts.items()
    ]


def write_data(experiments: Sequence[Experiment], scale: str, folder: Path) -> None:
    """Write the few images that studies of these experiments train on, where they do."""
    named = {changes_of(p, scale).get("data.name") for e in experiments for p in e.at(scale)}
    for file in FEW:
        if file in named:
            write_few(file, folder)


def rows_of(study: Study) -> Rows | None:
    """Return the rows of a study as far as they go; None where it has not been begun."""
    path = database(study)
    if not path.is_file():
        return None
    with Store.read(path) as store:
        store.check(study.identity)
        trials = store.trials()
        losses = {
            t.number: [c["test_loss"] for c in store.repeat_curves(t.number)]
            for t in trials
            if t.state == "done" and "test_loss" in t.curves
        }
        if store.finished() == 0:
            return None
        return Rows(study, trials, losses, store.seconds())


def reproduce(
    experiment: Experiment, scale: str, folder: Path, jobs: int = 1, seconds: float | None = None
) -> dict[str, Any]:
    """Run an experiment, write its figure and numbers into a folder, and return the numbers."""
    work = work_of([experiment], scale, folder)
    write_data([experiment], scale, folder)
    train(work, jobs, seconds)
    return report(experiment, scale, folder)


def report(experiment: Experiment, scale: str, folder: Path) -> dict[str, Any]:
    """Write the figure and numbers of an experiment as far as its rows go; return the numbers."""
    parts = experiment.at(scale)
    begun = {p.name: rows_of(study_of(p, scale, folder)) for p in parts}
    rows = {name: r for name, r in begun.items() if r is not None}
    found = experiment.report(rows)
    if scale == "quick":
        found = dataclasses.replace(found, comparisons=tuple(map(unjudged, found.comparisons)))
    figure = folder / f"{experiment.name}.png"
    result = {
        "name": experiment.name,
        "title": experiment.title,
        "scale": scale,
        "left_out": experiment.left_out,
        "smaller": smaller(experiment, scale),
        "unfinished": unfinished(parts, scale, rows),
        "verdict": verdict_of(found.comparisons),
        "paragraph": paragraph(found, scale),
        "comparisons": [dataclasses.asdict(c) for c in found.comparisons],
        "figure": figure.name,
        "panels": [_rounded(dataclasses.asdict(p)) for p in found.panels],
        "studies": [_study(p, scale, rows) for p in parts],
    }
    write_figure(panels_of(result), figure)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_again(folder / f"{experiment.name}.json", text.encode(), "result")
    return result


def unjudged(comparison: Comparison) -> Comparison:
    """Leave a printed number open: a small experiment gives others, whatever the paper did."""
    try:
        float(comparison.paper)
    except ValueError:
        return comparison
    why = comparison.why
    if comparison.ours != NOT_RUN:
        why += " So small an experiment cannot judge a number."
    return dataclasses.replace(comparison, verdict="open", why=why)


def _study(part: Part, scale: str, rows: Mapping[str, Rows]) -> dict[str, Any]:
    """Return what was run of one study."""
    mine = rows.get(part.name)
    return {
        "name": part.name,
        "file": f"examples/papers/{part.file}",
        "changes": changes_of(part, scale),
        "trials": finished(mine) if mine else 0,
        "seconds": round(mine.seconds, 1) if mine else 0.0,
    }


def finished(rows: Rows) -> int:
    """Return how many trials are finished."""
    return sum(t.state != "pending" for t in rows.trials)


def unfinished(parts: Sequence[Part], scale: str, rows: Mapping[str, Rows]) -> str:
    """Return in words which studies have not come to their budget; nothing where all have."""
    least: dict[str, tuple[int, int]] = {}
    for part in parts:
        mine = rows.get(part.name)
        label = part.name.rsplit("-seed", 1)[0]
        so_far = (finished(mine), mine.study.budget) if mine else (0, 0)
        if mine is None or so_far[0] < so_far[1]:
            least[label] = min(so_far, least.get(label, so_far))
    by_count: dict[tuple[int, int], list[str]] = {}
    for label, so_far in least.items():
        by_count.setdefault(so_far, []).append(label)
    said = [
        f"{done} of {of} trials of {', '.join(names)}" if of else f"nothing of {', '.join(names)}"
        for (done, of), names in sorted(by_count.items())
    ]
    return "; ".join(said)


def _rounded(value: Any) -> Any:
    """Return plain data with its numbers rounded to what a figure can show."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value


def smaller(experiment: Experiment, scale: str) -> str:
    """Return in words what the quick scale changes; nothing at the paper's own."""
    changed: dict[str, None] = {}
    for part in experiment.at(scale) if scale == "quick" else ():
        for key, value in (part.quick or {}).items():
            if key != "optimizer":
                changed[f"{key} = {json.dumps(value)}"] = None
    return ", ".join(changed)


def paragraph(found: Found, scale: str) -> str:
    """Return in words what agrees, differs and is open, and why."""
    counts = {v: sum(c.verdict == v for c in found.comparisons) for v in ("agrees", "differs")}
    ours = sum(c.paper == "–" for c in found.comparisons)
    head = (
        f"At {scale} scale {counts['agrees']} of {len(found.comparisons) - ours} statements agree "
        f"and {counts['differs']} differ."
    )
    return " ".join([head, *(c.why for c in found.comparisons if not c.why.endswith(UNBEGUN))])


def committed(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return the committed result of a name; None where there is none.

    What its scale has not run is taken from NAME-quick.json, where that is committed too.
    """
    result = _read(folder / f"{name}.json")
    quick = _read(folder / f"{name}-quick.json")
    if result is None:
        return None
    known = {c["what"]: c for c in quick["comparisons"]} if quick else {}
    result["comparisons"] = [
        {**known[c["what"]], "scale": "quick"}
        if c["ours"] == NOT_RUN and c["what"] in known
        else {**c, "scale": result["scale"]}
        for c in result["comparisons"]
    ]
    result["quick_figure"] = quick["figure"] if quick else ""
    result["quick_smaller"] = quick["smaller"] if quick else ""
    return result


def redraw(folder: Path = RESULTS) -> list[Path]:
    """Draw the figures of the results in a folder again, from their numbers; return their paths."""
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    return [write_figure(panels_of(r), folder / r["figure"]) for r in found if r]


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result
