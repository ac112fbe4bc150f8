"""What everything outside training costs: proposing, storing, watching and reporting, in a 400-trial study.

    python benchmarks/loop.py [--json] [--trials N]

Prints the share of the wall time that is not spent inside the training of federations; the bar is 2 %.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from fedpareto import Study, load_study, run, view, write_page
from fedpareto.report.progress import progress
from fedpareto.report.text import table

STUDY = Path(__file__).with_name("loop.toml")


@dataclass
class Clock:
    """Seconds per kind of work."""

    spent: dict[str, float] = field(default_factory=dict)

    def timed(self, name, function):
        def call(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - start
        return call


class Terminal(io.StringIO):
    """A place for the progress bar that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def timed(inner, clock, name, method):
    """Return a copy of a problem or an optimizer, one method of which is timed."""
    copied = copy.copy(inner)
    object.__setattr__(copied, method, clock.timed(name, getattr(inner, method)))
    return copied


def measure(trials: int) -> dict[str, float]:
    """Run the study and return the seconds of each part."""
    clock, study = Clock(), load_study(STUDY, budget=trials)
    study.problem.measure(study.problem.space.decode(np.full((1, 3), 0.5)), [0])  # loads torch and the data
    watched = Study(study.name, timed(study.problem, clock, "training", "measure"),
                    timed(study.optimizer, clock, "proposing", "propose"), study.budget, study.seed, study.repeats,
                    study.path, study.description)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with progress(watched, Terminal()) as watch:
            store = run(watched, Path(folder) / "loop.db", watch=clock.timed("watching", watch))
        with store:
            report = clock.timed("reporting", lambda: _report(watched, store, Path(folder)))
            report()
        total = time.perf_counter() - start
    spent = clock.spent
    spent["storing"] = total - sum(spent.values())
    return {"trials": trials, "total": total, **spent, "share_outside_training": 1 - spent["training"] / total}


def _report(study, store, folder: Path) -> None:
    """Do what `fedpareto run` does at its end."""
    seen = view(study, store)
    write_page(seen, folder / "loop.html")
    Console(file=io.StringIO()).print(table(seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trials", type=int, default=400)
    given = parser.parse_args()
    found = measure(given.trials)
    if given.json:
        print(json.dumps(found))
        return
    for name in ("training", "proposing", "storing", "watching", "reporting", "total"):
        print(f"{name:10s} {found[name]:8.3f} s {100 * found[name] / found['total']:6.2f} %")
    print(f"outside training: {100 * found['share_outside_training']:.2f} % of {given.trials} trials (bar: 2 %)")


if __name__ == "__main__":
    main()
