"""The model card: what a kept model is, how it was made, what is promised of it and what is not."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.federation.measures import MEASURES
from fedpareto.files import write_again
from fedpareto.keep import Trained, write_weights
from fedpareto.privacy import rounded_up
from fedpareto.report.caveats import not_guaranteed
from fedpareto.report.choose import Point
from fedpareto.report.points import View
from fedpareto.report.privacy import promises, search_cost
from fedpareto.report.text import package_versions
from fedpareto.trials import Trial
from fedpareto.words import short, visible

TITLE = "# Model card:"


def write_model(
    seen: View, point: Point, trained: Trained, row: Trial | None, path: Path
) -> tuple[Path, Path]:
    """Write the model as safetensors and its card beside it; return both paths.

    row is the trial that the point is, or is on the way of.
    """
    about = {
        "study": seen.study.name,
        "trial": str(point.trial),
        "repeat": str(trained.repeat),
        "fedpareto": __version__,
    }
    if trained.seed is not None:
        about["seed"] = str(trained.seed)
    write_weights(trained, path, about)
    card_path = path.with_suffix(".md")
    text = card(seen, point, trained, row, hashlib.sha256(path.read_bytes()).hexdigest())
    write_again(card_path, text.encode(), "model card")
    return path, card_path


def card(seen: View, point: Point, trained: Trained, row: Trial | None, weights: str) -> str:
    """Return the card as Markdown; weights is the SHA-256 of the file of weights."""
    parts = [
        f"{TITLE} {_text(seen.study.name)}, trial {point.trial}, repeat {trained.repeat}",
        "A model trained by federated learning in a simulation, with the settings below.",
        section("Settings", table(("setting", "value"), _settings(seen, trained))),
        section("Data", table(("what", "which"), _data(seen))),
        section("Model", table(("parameter", "shape"), _shapes(trained))),
        section("Measures", table(("measure", "value"), _measures(trained))),
        section("What is promised", bullets(_promised(seen, point))),
        section("What is not promised", bullets(not_guaranteed(seen, point))),
        section("Versions and hashes", table(("what", "which"), _hashes(seen, row, weights))),
        section("How to use it", _usage()),
    ]
    return "\n\n".join(parts) + "\n"


def _settings(seen: View, trained: Trained) -> list[tuple[str, str]]:
    """Return the searched settings of this model, then those that the study fixes."""
    rows = [(name, f"{value} (searched)") for name, value in trained.settings.items()]
    for part in ("model", "training", "mechanism", "server", "local"):
        for name, value in seen.study.description.get(part, {}).items():
            if name not in trained.settings:
                rows.append((f"{part}.{name}", str(value)))
    return rows


def _data(seen: View) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in seen.study.description.get("data", {}).items()]


def _shapes(trained: Trained) -> list[tuple[str, str]]:
    return [(name, str(list(t.shape))) for name, t in trained.module.state_dict().items()]


def _measures(trained: Trained) -> list[tuple[str, str]]:
    """Return the measures of this model; an ε rounds up, and a proxy says that it is one."""
    rows = []
    for name, value in trained.measures.items():
        if not math.isfinite(value):
            continue
        shown = rounded_up(value) if name.startswith("epsilon") else short(value)
        proxy = MEASURES[name].proxy if name in MEASURES else None
        rows.append((f"{name} (proxy: {proxy})" if proxy else name, shown))
    return rows


def _promised(seen: View, point: Point) -> list[str]:
    lines = promises(seen, point)
    if not lines:
        return ["Nothing: the problem knows no privacy terms."]
    return [*lines, *search_cost(seen)]


def _hashes(seen: View, row: Trial | None, weights: str) -> list[tuple[str, str]]:
    rows = [("fedpareto", __version__), ("Python", platform.python_version())]
    rows += [(name, found or "not installed") for name, found in package_versions().items()]
    study = seen.study.path
    if study is not None:
        rows.append(("SHA-256 of the study file", hashlib.sha256(study.read_bytes()).hexdigest()))
    if row is not None:
        rows.append(("SHA-256 of the row", row_sha256(row)))
    rows.append(("SHA-256 of the weights", weights))
    return rows


def row_sha256(row: Trial) -> str:
    """Return the SHA-256 of one row: settings, measures, spread, errors; no clock and no path."""
    text = json.dumps(asdict(row), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _usage() -> str:
    return (
        "Load the weights with `safetensors.torch.load_file` into the model that the study builds: "
        "`study.problem.module(settings)` from Python, with the settings above."
    )


def section(title: str, body: str) -> str:
    """Return a part of a card under its title."""
    return f"## {title}\n\n{body}"


def table(heads: Sequence[str], rows: Iterable[tuple[str, str]]) -> str:
    """Return rows as a table of a card; what they hold is text and never markup."""
    lines = [_row(heads), _row("---" for _ in heads), *(_row(map(_text, row)) for row in rows)]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def bullets(lines: Iterable[str]) -> str:
    """Return lines as a list of a card; what they hold is text and never markup."""
    return "\n".join(f"- {_text(line)}" for line in lines)


def _text(value: Any) -> str:
    """Return a text that Markdown shows as it is: no markup, no table cells, one line."""
    out = visible(" ".join(str(value).split()))
    for mark in "\\`|<>[]*_~&$":
        out = out.replace(mark, f"\\{mark}")
    return out
