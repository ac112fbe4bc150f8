"""A study that takes some seconds, whoever trains it, and the command that runs it on a cluster.

python slow_studies.py DATABASE SEED IN_FLIGHT ADDRESS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto import Float, Nsga2, Objective, Space, Study, on_ray, run


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
    """Return a study of 20 batches of 12 trials, 80 blocks in all."""
    return Study("slow", Slow(sleep=sleep), Nsga2(population=12), 240, seed, in_flight=in_flight)


if __name__ == "__main__":
    db, seed, in_flight, address = sys.argv[1:]
    run(study_of(int(seed), int(in_flight)), Path(db), evaluate=on_ray(address=address)).close()
