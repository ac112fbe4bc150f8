"""A study that takes some seconds, whoever trains it, and the command that runs it on a cluster.

python slow_studies.py DATABASE SEED IN_FLIGHT SECONDS ADDRESS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import Float, Nsga2, Objective, Space, Study, on_ray, run
from fedpareto.executors import Executor


@dataclass(frozen=True)
class Slow:
    """A problem whose trainings take a while, and have luck."""

    block: int = 3
    sleep: float = 0.25

    space = Space((Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)))
    objectives = (Objective("near"), Objective("far"))
    failures = {}  # noqa: RUF012

    def measure(self, values: Any, seeds: Sequence[int]) -> dict[str, Any]:
        x, y = np.array(values["x"]), np.array(values["y"])
        time.sleep(self.sleep)
        luck = np.array([seed % 1009 for seed in seeds]) / 10090
        return {"near": x + luck, "far": 1 - np.sqrt(x) + y}


def study_of(seed: int, in_flight: int, sleep: float = 0.25) -> Study:
    """Return a study of 20 batches of 12 trials, 80 blocks in all; the same one however long they sleep."""
    told = {"seed": seed, "repeats": 1, "in_flight": in_flight, "problem": "slow"}
    return Study("slow", Slow(sleep=sleep), Nsga2(population=12), 240, seed, in_flight=in_flight, description=told)


def on_ray_saying_where(address: str, said: Path) -> Executor:
    """Train on Ray, and write into a file on which node of the cluster the run itself is."""

    def results(problem: Any, more: Any, seed: int) -> Iterator[Any]:
        import ray

        for found in on_ray(address=address)(problem, more, seed):
            said.write_text(ray.get_runtime_context().get_node_id())
            yield found

    return results


if __name__ == "__main__":
    db, seed, in_flight, sleep, address = sys.argv[1:]
    evaluate = on_ray_saying_where(address, Path(db).with_suffix(".node"))
    run(study_of(int(seed), int(in_flight), float(sleep)), Path(db), evaluate=evaluate).close()
