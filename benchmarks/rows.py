"""What a study of 100,000 trials costs beside its trainings: to run, go on with, propose for, look at, report and verify.

    python benchmarks/rows.py [--rows 1000 10000 100000] [--optimizers random nsga2] [--json FILE]

The study is the quickstart's federation, one training a trial. Its results are made up in place of trained, by an executor, so
that what is left is all that fedpareto does beside training. Every command runs in a process of its own, start-up included: the
shortest study says what that is. Bars for 100,000 trials, in seconds of a processor, since the machine may be shared: a
proposal, front, verify and going on 60 each, a report 90, and a run that needs at most twice the memory of the shortest one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import Study, load_study, run
from fedpareto.evaluate import blocks_of
from fedpareto.executors import More
from fedpareto.loop import known, points
from fedpareto.noise import rng
from fedpareto.optimizers.bayesian import Bayesian
from fedpareto.problem import Problem
from fedpareto.store import Store
from fedpareto.trials import Result

QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.toml"
OPTIMIZERS = {"random": 'name = "random"\nbatch = 20\n', "nsga2": 'name = "nsga2"\npopulation = 20\n'}
BARS = {"propose": 60, "go on": 60, "front": 60, "verify": 60, "report": 90}  # seconds, of 100,000 trials
FLAT = 2.0  # times the memory of the run of the fewest trials
OTHERS = ("loss", "train_error", "seconds", "bytes_up", "bytes_down", "leakage", "mse", "accuracy")


def made_up(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
    """Answer every trial with numbers that look like those of a training."""
    while trials := more():
        for jobs in blocks_of(problem, trials):
            yield [Result(trial.number, repeat, looks(trial.number, trial.settings)) for trial, repeat in jobs]


def looks(number: int, settings: dict[str, Any]) -> dict[str, float]:
    """Return measures: less error for more ε, both by the settings, and luck."""
    luck = rng(number, "looks").standard_normal(len(OTHERS) + 1)
    noise, share = settings.get("noise_multiplier", 0.1), settings["sample_ratio"]
    off = np.log(settings["learning_rate"] / 0.5) ** 2 + np.log(settings.get("clipping_norm", 0.5) / 0.5) ** 2
    error = 0.08 + 0.1 * noise * share**-0.5 / 20 + 0.05 * off + 0.02 * abs(luck[-1])
    return {"test_error": float(min(0.9, error)), "epsilon": float(20 * share / noise)} | dict(zip(OTHERS, map(float, luck), strict=False))


def study_of(folder: Path, optimizer: str, rows: int) -> Study:
    """Return the study, its file written into a folder."""
    text = QUICKSTART.read_text().replace("repeats = 2 ", "repeats = 1 ")
    path = folder / f"{optimizer}-{rows}.toml"
    path.write_text(text[: text.index("[optimizer]")] + "[optimizer]\n" + OPTIMIZERS[optimizer])
    return load_study(path, budget=rows)


def part(name: str, path: Path, rows: int) -> dict[str, Any]:
    """Do one piece of work in this process, and say what it took of a processor, without start-up."""
    study = load_study(path, budget=rows)
    began = time.process_time()
    if name in ("run", "go on"):
        run(replace(study, budget=rows + 20 * (name == "go on")), evaluate=made_up).close()
    else:
        if name == "bayesian":
            study = replace(study, optimizer=Bayesian())
        with Store.read(path.with_suffix(".db")) as store:
            history = known(study, store)
        began = time.process_time()
        points(study, history, len(history) // study.optimizer.batch)
    return {"cpu_of_it": time.process_time() - began}


def timed(words: Sequence[str]) -> dict[str, Any]:
    """Run a command and return its seconds, the most memory it held, in MB, and what it printed last."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}\n{said}")
    return {"seconds": time.perf_counter() - began, "cpu": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024, "said": said}


def measured(folder: Path, optimizer: str, rows: int) -> Iterator[dict[str, Any]]:
    """Yield what each piece of work costs, the run that makes the rows first."""
    path = study_of(folder, optimizer, rows).path
    works = [("run", True), ("propose", True), ("front", False), ("report", False), ("verify", False), ("go on", True)]
    if optimizer == "random":
        works.insert(2, ("bayesian", True))
    for name, own in works:
        words = [str(Path(__file__)), "--part", name, str(path), str(rows)] if own else ["-m", "fedpareto", name, str(path)]
        found = timed(words)
        said = found.pop("said")
        if own:
            found |= json.loads(said.splitlines()[-1])
        if name == "bayesian":
            found["learns_from"] = next((line for line in said.splitlines() if "learn from" in line), "all")
        yield {"optimizer": optimizer, "rows": rows, "work": name, **found}


def judged(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each bar that a measurement does not hold."""
    few = {f["optimizer"]: f["peak_mb"] for f in reversed(found) if f["work"] == "run"}
    for f in found:
        if f["rows"] == 100_000 and f["cpu"] > BARS.get(f["work"], np.inf):
            yield f"{f['optimizer']}: {f['work']} took {f['cpu']:.0f} s (bar: {BARS[f['work']]} s)"
        if f["work"] == "run" and f["peak_mb"] > FLAT * few[f["optimizer"]]:
            yield f"{f['optimizer']}: {f['rows']} rows took {f['peak_mb'] / few[f['optimizer']]:.1f} times the memory (bar: {FLAT:g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--optimizers", nargs="+", default=[*OPTIMIZERS], choices=[*OPTIMIZERS])
    parser.add_argument("--json", type=Path, help="write what was found there too")
    parser.add_argument("--part", nargs=3, metavar=("WORK", "STUDY", "ROWS"), help="one piece of work, in this process")
    given = parser.parse_args()
    if given.part:
        name, path, rows = given.part
        print(json.dumps(part(name, Path(path), int(rows))))
        return
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for optimizer in given.optimizers:
            for rows in given.rows:
                for row in measured(Path(folder), optimizer, rows):
                    found.append(row)
                    also = f", {row['cpu_of_it']:.2f} s without start-up" if "cpu_of_it" in row else ""
                    also += f"; {row['learns_from']}" if "learns_from" in row else ""
                    print(f"{optimizer:6s} {rows:7d} rows, {row['work']:8s} {row['cpu']:7.1f} s, {row['peak_mb']:5.0f} MB{also}", flush=True)
    for line in judged(found):
        print(line)
    if given.json:
        given.json.write_text(json.dumps({"command": "python benchmarks/rows.py", "work": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
