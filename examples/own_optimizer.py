"""An optimizer of one's own: small steps away from the best points so far.

Run a study with it: fedpareto run examples/own_optimizer.toml
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.front import nondominated
from fedpareto.noise import rng
from fedpareto.problem import penalised
from fedpareto.settings import setting
from fedpareto.testing import check_optimizer


@dataclass(frozen=True)
class Steps:
    """Begin at random points, then step away from points of the front."""

    batch: int = setting(10, help="points proposed at once", at_least=1, search=False)
    size: float = setting(
        0.1, help="length of a step, the cube being 1 wide", above=0, search=False
    )

    def propose(self, problem, history, n, seed):
        draw = rng(seed, "steps", len(history))  # the same arguments always give the same points
        x = history.x[~history.failed]
        y = history.y[~history.failed]
        if len(x) == 0:
            return draw.random((n, len(problem.space)))
        front = x[nondominated(penalised(problem.objectives, y))]
        start = front[draw.integers(0, len(front), n)]
        return np.clip(start + self.size * draw.normal(size=start.shape), 0, 1)


if __name__ == "__main__":
    check_optimizer(Steps())
    print("Steps keeps the contract of an optimizer")
