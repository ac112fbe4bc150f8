"""How long a block of trainings takes on this machine, by a few rounds of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.federation.blocks import at_once
from fedpareto.settings import largest
from fedpareto.space import Values

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation

LONG = 5.0  # seconds of the first round after which no other is tried: it is the estimate, too high


def block_seconds(problem: Federation, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return about how long a block takes at the middle of the space, its models stacked already.

    The first round of a process also loads data and tries the model, so it is not counted unless it
    is long. Of the others, one round and three tell what a round costs and what comes once.
    """
    point = problem.space.decode(np.full((1, len(problem.space)), 0.5))
    rounds = int(largest(problem.training.rounds))  # a block goes on for the longest of its rows
    rows = at_once(problem)[0]
    values = {name: column * rows for name, column in point.items()}
    first = _timed(problem, values, rows, 1, clock)
    if first > LONG:
        return first * rounds
    one, three = (_timed(problem, values, rows, some, clock) for some in (1, 3))
    return one + max(0.0, three - one) / 2 * (rounds - 1)


def _timed(
    problem: Federation, values: Values, rows: int, rounds: int, clock: Callable[[], float]
) -> float:
    """Return the seconds of so many rounds of a block."""
    short = replace(
        problem, training=replace(problem.training, rounds=rounds), objectives=(), limits=()
    )
    began = clock()
    short.measure({name: values[name] for name in short.space.names}, [0] * rows)
    return clock() - began
