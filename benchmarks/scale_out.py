"""What Ray costs a block, how busy workers are with trials of uneven length, and what batches in flight cost and gain.

    python benchmarks/scale_out.py [--json] [--save] [--parts overhead busy memory cost] [--workers 2 4 8 16] [--quick]

Trials sleep, so that as many workers can be tried as one likes: they need no processor. `busy` is the time slept in all over
workers × wall time; 1 is linear. Bars: 20 ms a block, busy at least 0.9 at in_flight 4 where the logarithm of a trial's time
spreads by 0.3, and the memory of the process that runs the study at most 1.2 times as large for 20 times the trials. Cost is
measured without a cluster: the hypervolume after the same trials of the same problem, for several in_flight and seeds.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import Float, Nsga2, Objective, Random, Space, Study, on_ray, run
from fedpareto.front import hypervolume
from fedpareto.noise import rng
from fedpareto.optimizers.bayesian import Bayesian
from fedpareto.problem import reference
from fedpareto.testing import continuous

PARTS = ("overhead", "busy", "memory", "cost")
RESULTS = Path(__file__).parent / "results" / "scale_out.json"


@dataclass(frozen=True)
class Sleeping:
    """A problem whose trials sleep, some longer than others."""

    seconds: float = 0.2  # in the middle
    spread: float = 0.3  # of the logarithm of a trial's time
    block: int = 1

    space = Space((Float("x", 0.0, 1.0),))
    objectives = (Objective("y"),)
    failures = {}  # noqa: RUF012

    def lasts(self, x: float) -> float:
        return float(self.seconds * np.exp(self.spread * rng(round(x * 1e9), "lasts").standard_normal()))

    def measure(self, values: Any, seeds: Sequence[int]) -> dict[str, Any]:
        x = np.array(values["x"])
        if self.seconds:
            time.sleep(max(map(self.lasts, x)))
        return {"y": x**2}


def overhead(blocks: int) -> dict[str, float]:
    """Return the milliseconds a block of one empty trial takes, all in all, on one worker and in this process."""
    took = {}
    for name, evaluate in (("ray", on_ray(workers=1)), ("here", None)):
        problem = Sleeping(seconds=0.0)
        with tempfile.TemporaryDirectory() as folder:
            words = {} if evaluate is None else {"evaluate": evaluate}
            study = Study("overhead", problem, Random(batch=blocks), budget=20)
            run(study, Path(folder) / "overhead.db", **words).close()  # begins the worker
            began = time.perf_counter()
            run(Study("overhead", problem, Random(batch=blocks), budget=blocks), Path(folder) / "o.db", **words).close()
            took[f"{name}_ms_a_block"] = 1000 * (time.perf_counter() - began) / blocks
    return took


def busy(workers: int, in_flight: int, spread: float, batches: int, seconds: float) -> dict[str, float]:
    """Return the share of their time that workers train, with batches of as many trials as workers."""
    problem = Sleeping(seconds, spread)
    study = Study("busy", problem, Random(batch=workers), budget=workers * batches, in_flight=in_flight)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with run(study, Path(folder) / "busy.db", evaluate=on_ray(workers=workers)) as store:
            wall = time.perf_counter() - began
            slept = sum(problem.lasts(t.settings["x"]) for t in store.trials())
    return {"workers": workers, "in_flight": in_flight, "spread": spread, "wall": wall, "busy": slept / workers / wall}


def peak(trials: int) -> dict[str, float]:
    """Return the most memory, in MB, of a process that runs so many empty trials on the cluster."""
    words = [sys.executable, __file__, "--peak", str(trials)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return {"trials": trials, "peak_mb": usage.ru_maxrss / 1024}


def empty(trials: int) -> None:
    """Run so many empty trials, on one worker."""
    with tempfile.TemporaryDirectory() as folder:
        study = Study("peak", Sleeping(seconds=0.0, block=50), Random(batch=500), budget=trials)
        run(study, Path(folder) / "peak.db", evaluate=on_ray(workers=1)).close()


def cost(name: str, in_flight: int, budget: int, seeds: int) -> dict[str, Any]:
    """Return the hypervolume of ZDT2 in six variables after so many trials."""
    def zdt2(x: Any) -> Any:
        g = 1 + 9 * x[:, 1:].mean(axis=1)
        return np.stack([x[:, 0], g * (1 - (x[:, 0] / g) ** 2)], axis=1)

    problem = continuous(zdt2, 6, 2)
    found = []
    for seed in range(seeds):
        optimizer = {"bayesian": Bayesian(), "nsga2": Nsga2(population=10)}[name]
        with tempfile.TemporaryDirectory() as folder:
            study = Study("cost", problem, optimizer, budget=budget, seed=seed, in_flight=in_flight)
            with run(study, Path(folder) / "cost.db") as store:
                found.append(hypervolume(store.history(["f1", "f2"]).y, reference(problem.objectives)))
    error = float(np.std(found, ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0
    return {"optimizer": name, "in_flight": in_flight, "trials": budget, "hypervolume": float(np.mean(found)), "error": error, "of_seeds": found}


def measured(workers: Sequence[int], quick: bool, parts: Sequence[str]) -> dict[str, Any]:
    """Measure some parts; the first three on a cluster on this machine."""
    found: dict[str, Any] = {}
    if {"overhead", "busy"} & {*parts}:
        found = on_a_cluster(workers, quick, parts)
    if "memory" in parts:
        found["memory"] = [peak(trials) for trials in ((1000, 2000) if quick else (1000, 5000, 20_000))]
    if "cost" in parts:
        seeds = 1 if quick else 3
        found["cost"] = [cost("nsga2", L, 200, 4 * seeds) for L in (0, 1, 2, 4)]
        found["cost"] += [cost("bayesian", L, 40, seeds) for L in (0, 1, 2, 4)]
    return found


def on_a_cluster(workers: Sequence[int], quick: bool, parts: Sequence[str]) -> dict[str, Any]:
    """Measure overhead and busy workers on a cluster of as many processors as there are workers at most."""
    import ray

    ray.init(address="local", num_cpus=max(workers), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    found: dict[str, Any] = {}
    try:
        if "overhead" in parts:
            found["overhead"] = overhead(200 if quick else 1000)
        if "busy" in parts:
            for _ in range(2):  # the first begins every worker process
                busy(max(workers), 4, 0.3, 4, 0.5)
            found["busy"] = [
                busy(n, in_flight, spread, 6 if quick else 20, 1.0)
                for n in workers for spread in ((0.3,) if quick else (0.3, 0.8)) for in_flight in (0, 1, 2, 4)
            ]
    finally:
        ray.shutdown()
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was found, a line for each, and say where a bar does not hold."""
    if "overhead" in found:
        ms = found["overhead"]
        yield f"a block: {ms['ray_ms_a_block']:.1f} ms on Ray, {ms['here_ms_a_block']:.1f} ms here (bar: 20 ms)"
    for row in found.get("busy", ()):
        short = " (bar: 0.9)" * (row["busy"] < 0.9 and row["in_flight"] == 4 and row["spread"] == 0.3)
        yield f"{row['workers']:3d} workers, spread {row['spread']}, in_flight {row['in_flight']}: busy {row['busy']:.2f} ({row['wall']:.1f} s){short}"
    for row in found.get("memory", ()):
        yield f"{row['trials']:6d} trials: peak {row['peak_mb']:.0f} MB, {row['peak_mb'] / found['memory'][0]['peak_mb']:.2f} times (bar: 1.2)"
    for row in found.get("cost", ()):
        seeds = len(row["of_seeds"])
        yield (f"{row['optimizer']:9s} in_flight {row['in_flight']}: hypervolume {row['hypervolume']:.4f} ± {row['error']:.4f} "
               f"after {row['trials']} trials ({seeds} seeds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help=f"write what was measured into {RESULTS.name}, beside other parts")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_raylet_start_wait_time_s": "120"}
    if given.peak:
        empty(given.peak)
        return
    found = measured(given.workers, given.quick, given.parts)
    print(json.dumps(found) if given.json else "\n".join(lines(found)))
    if given.save:
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"command": "python benchmarks/scale_out.py --save"}
        RESULTS.write_text(json.dumps(before | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
