"""What Ray costs a block, how busy workers are with trials of uneven length, and what the process that runs the study holds.

    python benchmarks/scale_out.py [--json] [--save] [--parts overhead busy long memory] [--workers 2 4 8 16] [--quick]

Trials sleep, so that as many workers can be tried as one likes: they need no processor. `busy` is the time slept in all over
workers × wall time; 1 is linear. `ideal` is what the same trials would give if handing them out took no time: workers wait for
batches, and at the end of a study for its last trials. `busy` is measured in studies of 20 trials a worker, `long` in those of 80
whose times differ much, in batches of one and of four trials a worker. Bars: 20 ms a block, busy at least 0.9 at in_flight 4 where
the logarithm of a trial's time spreads by 0.3 and in long studies at some in_flight where it spreads by 0.8, and the memory of the
process that runs the study at most 1.2 times as large for 20 times the trials. benchmarks/in_flight.py says what L costs a search.
"""

from __future__ import annotations

import argparse
import heapq
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

from fedpareto import Float, Objective, Random, Space, Study, on_ray, run
from fedpareto.noise import rng

PARTS = ("overhead", "busy", "long", "memory")
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


def busy(workers: int, in_flight: int, spread: float, trials: int, seconds: float, batch: int = 1) -> dict[str, float]:
    """Return the share of their time that workers train, with so many trials a worker, and so many of them a batch."""
    problem = Sleeping(seconds, spread)
    study = Study("busy", problem, Random(batch=workers * batch), budget=workers * trials, in_flight=in_flight)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with run(study, Path(folder) / "busy.db", evaluate=on_ray(workers=workers)) as store:
            wall = time.perf_counter() - began
            lasted = [problem.lasts(t.settings["x"]) for t in store.trials()]
    whole = sum(lasted) / workers
    return {"workers": workers, "in_flight": in_flight, "spread": spread, "batch": workers * batch, "trials": workers * trials,
            "wall": wall, "busy": whole / wall, "ideal": whole / shortest(lasted, workers, workers * batch, in_flight)}


def shortest(lasted: Sequence[float], workers: int, batch: int, in_flight: int) -> float:
    """Return the seconds of a study whose trials last so long, if a free worker has the next one at once."""
    now, handed, finished, under_way = 0.0, 0, set[int](), list[tuple[float, int]]()
    while len(finished) < len(lasted):
        first = next(i for i in range(len(lasted)) if i not in finished) // batch  # the first batch that is not finished
        while handed < min(len(lasted), (first + in_flight + 1) * batch) and len(under_way) < workers:
            heapq.heappush(under_way, (now + lasted[handed], handed))
            handed += 1
        now, trial = heapq.heappop(under_way)
        finished.add(trial)
    return now


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


def measured(workers: Sequence[int], quick: bool, parts: Sequence[str]) -> dict[str, Any]:
    """Measure some parts, all but the memory on one cluster on this machine."""
    found: dict[str, Any] = {}
    if {"overhead", "busy", "long"} & {*parts}:
        found = on_a_cluster(workers, quick, parts)
    if "memory" in parts:
        found["memory"] = [peak(trials) for trials in ((1000, 2000) if quick else (1000, 5000, 20_000))]
    return found


def on_a_cluster(workers: Sequence[int], quick: bool, parts: Sequence[str]) -> dict[str, Any]:
    """Measure overhead and busy workers on a cluster of as many processors as there are workers at most."""
    import ray

    ray.init(address="local", num_cpus=max(workers), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    found: dict[str, Any] = {}
    try:
        if "overhead" in parts:
            found["overhead"] = overhead(200 if quick else 1000)
        if {"busy", "long"} & {*parts}:
            for _ in range(2):  # the first begins every worker process
                busy(max(workers), 4, 0.3, 4, 0.5)
        if "busy" in parts:
            found["busy"] = [
                busy(n, in_flight, spread, 6 if quick else 20, 1.0)
                for n in workers for spread in ((0.3,) if quick else (0.3, 0.8)) for in_flight in (0, 1, 2, 4)
            ]
        if "long" in parts:
            found["long"] = [
                busy(n, in_flight, 0.8, 20 if quick else 80, 0.5, batch)
                for n in workers for batch, levels in ((1, (0, 4, 8)), (4, (0, 1, 2))) for in_flight in levels
            ]
    finally:
        ray.shutdown()
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was found, a line for each, and say where a bar does not hold."""
    if "overhead" in found:
        ms = found["overhead"]
        yield f"a block: {ms['ray_ms_a_block']:.1f} ms on Ray, {ms['here_ms_a_block']:.1f} ms here (bar: 20 ms)"
    for row in (*found.get("busy", ()), *found.get("long", ())):
        short = " (bar: 0.9)" * (row["busy"] < 0.9 and row["in_flight"] == 4 and row["spread"] == 0.3)
        yield (f"{row['workers']:3d} workers, spread {row['spread']}, batches of {row['batch']} of {row['trials']} trials, in_flight {row['in_flight']}: "
               f"busy {row['busy']:.2f} of at most {row['ideal']:.2f} ({row['wall']:.1f} s){short}")
    for n in sorted({row["workers"] for row in found.get("long", ())}):
        best = max(row["busy"] for row in found["long"] if row["workers"] == n)
        yield f"{n:3d} workers, spread 0.8: busy {best:.2f} at best" + " (bar: 0.9)" * (best < 0.9)
    for row in found.get("memory", ()):
        yield f"{row['trials']:6d} trials: peak {row['peak_mb']:.0f} MB, {row['peak_mb'] / found['memory'][0]['peak_mb']:.2f} times (bar: 1.2)"


def joined(before: Any, found: Any) -> Any:
    """Return what was found, and of the rows before those of other numbers of workers."""
    if not isinstance(found, list) or "workers" not in found[0]:
        return found
    fresh = {row["workers"] for row in found}
    return sorted([row for row in before if row["workers"] not in fresh] + found, key=lambda row: row["workers"])


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
    if given.save:
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"command": "python benchmarks/scale_out.py --save"}
        RESULTS.write_text(json.dumps(before | {part: joined(before.get(part, ()), rows) for part, rows in found.items()}, indent=1) + "\n")
    print(json.dumps(found) if given.json else "\n".join(lines(found)))


if __name__ == "__main__":
    main()
