"""How long a block of trainings takes on this machine, by a few rounds.

First by a few rounds of one federation alone: a block takes at most as many times as long as it has
federations. Then, where that is little, by a few rounds of a whole block. Of rounds of many local
steps only a few steps are taken: two numbers of them tell what every further step takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.contract import by_chance
from fedpareto.federation.blocks import at_once, setup_of
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.measuring import lost_by_protection
from fedpareto.problem import listening
from fedpareto.settings import largest
from fedpareto.space import Values

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation

ROUNDS = 5  # that are timed
FEW, MORE = 5, 20  # local steps that are timed where a round has more
LONG = 2.0  # seconds after which nothing more is timed

Clock = Callable[[], float]


class _Enough(Exception):
    """Nothing more needs to be timed."""


def block_seconds(problem: Federation, clock: Clock = time.perf_counter) -> float:
    """Return about how long a block takes at the middle of the space."""
    rows = at_once(problem)[0]
    rounds = int(largest(problem.training.rounds))  # a block goes on for the longest of its rows
    trainings = 2 if lost_by_protection(problem) else 1  # and the same without protection
    steps = _steps(problem)
    begins, each = 0.0, rows * _round(problem, 1, steps, clock)[1]
    timed = 1.0 if steps <= MORE else (FEW + MORE) / steps
    if ROUNDS * each * timed <= LONG or problem.device != "cpu":
        begins, each = _round(problem, rows, steps, clock)
    return trainings * (begins + rounds * each)


def _middle(problem: Federation) -> Values:
    """Return the point in the middle of the space, name → [1]."""
    return problem.space.decode(np.full((1, len(problem.space)), 0.5))


def _steps(problem: Federation) -> int:
    """Return the local steps of a round, of the client with the most; 1 where they must stay."""
    if isinstance(problem.local, ClipsRecords) and not by_chance(problem.local.batches):
        return 1
    (work,) = problem.training.works(_middle(problem), 1)
    return work.of(int(max(setup_of(problem, 0).train_split().sizes)))[0]


def _round(problem: Federation, rows: int, steps: int, clock: Clock) -> tuple[float, float]:
    """Return the seconds until the first round of so many federations, and those of a round."""
    if steps <= MORE:
        return _timed(problem, rows, clock)
    begins, least = _timed(_of_steps(problem, FEW), rows, clock)
    step = (_timed(_of_steps(problem, MORE), rows, clock)[1] - least) / (MORE - FEW)
    return begins, least + max(0.0, step) * (steps - FEW)


def _of_steps(problem: Federation, steps: int) -> Federation:
    """Return the federation with so many local steps a round."""
    return replace(problem, training=replace(problem.training, local_epochs=0, local_steps=steps))


def _timed(problem: Federation, rows: int, clock: Clock) -> tuple[float, float]:
    """Return the seconds until the first round of so many federations, and those of a round.

    The first round of a process also tries the model, so it tells nothing of the others.
    """
    every = problem.training.evaluate_every
    at = _heard(problem, rows, 1 if every == 1 else ROUNDS, clock)
    first, *others = np.diff(at).tolist()
    plain = float(np.mean(others[:-1] or others))
    judged = others[-1] - plain  # models are judged after the last round, or after every one
    each = float(np.mean(others)) if every == 1 else plain + max(0.0, judged) / every
    return max(0.0, first - each), each


def _heard(problem: Federation, rows: int, every: int, clock: Clock) -> list[float]:
    """Return when a training of so many federations began, and when each of its rounds ended."""
    training = replace(problem.training, rounds=ROUNDS, evaluate_every=every)
    short = replace(problem, training=training, objectives=(), limits=(), block=rows)
    point = _middle(problem)
    at = [clock()]

    def hear(share: float) -> None:
        at.append(clock())
        if len(at) > 2 and at[-1] - at[0] > LONG:
            raise _Enough

    with listening(hear), contextlib.suppress(_Enough):
        short.measure({name: list(point[name]) * rows for name in short.space.names}, [0] * rows)
    return at
