"""Selection goes on from where it stood, and gives what it gives from the beginning."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto import History, Nsga2
from fedpareto.optimizers import replay
from fedpareto.optimizers.base import Optimizer
from fedpareto.optimizers.clustering import FedMoeac
from fedpareto.optimizers.replay import Rows, replayed
from fedpareto.optimizers.variation import among
from fedpareto.problem import judges
from fedpareto.testing import continuous
from fedpareto.testing.functions import Function


def problem() -> Function:
    return continuous(lambda x: np.stack([x[:, 0], 1 + x[:, 1] - np.sqrt(x[:, 0])], axis=1), 3, 2, limit=1.2)


def history(batches: int, seed: int = 0) -> History:
    """Rows of which some failed, and some are over the limit."""
    luck = np.random.default_rng(seed)
    x = luck.random((8 * batches, 3))
    y = problem().function(x)
    y[luck.random(len(y)) < 0.1] = np.nan
    return History(x, y, np.repeat(np.arange(batches), 8))


@pytest.mark.parametrize("optimizer", [Nsga2(population=8), Nsga2(population=8, constraint="domination"), FedMoeac(population=8)])
def test_proposals_are_those_of_a_replay_from_the_beginning(optimizer: Optimizer) -> None:
    for batches in (1, 2, 5, 3, 9):
        known = history(9).before(batches)
        gone_on = optimizer.propose(problem(), known, 8, 1)
        replay._last.clear()
        assert gone_on.tolist() == optimizer.propose(problem(), known, 8, 1).tolist()


def counted(known: History, settings: object = "any") -> int:
    """Return how many batches are selected from."""
    calls = []

    def first_five(rows: Rows) -> Rows:
        calls.append(len(rows))
        return rows[:5]

    alive = replayed(settings, known, known.judged, first_five)
    assert alive.tolist() == np.flatnonzero(~known.failed)[:5].tolist()
    return len(calls)


def test_no_batch_is_selected_from_twice_unless_rows_or_settings_differ() -> None:
    replay._last.clear()
    known = history(6)
    assert [counted(known.before(n)) for n in (2, 4, 6, 6)] == [2, 2, 2, 0]
    assert counted(known, "others") == 6
    assert counted(history(6, seed=1), "others") == 6
    assert counted(history(6, seed=1).before(3), "others") == 3  # a shorter history is another one
    y = history(6, seed=1).y.copy()
    y[0, 0] = np.nan
    changed = History(history(6, seed=1).x, y, known.batch)
    assert counted(changed, "others") == 6


def test_judges_may_change_in_number() -> None:
    replay._last.clear()
    counted(history(3))
    replayed("any", history(4), history(4).y[:, :1], lambda rows: rows)
    assert counted(history(4)) == 4
    assert len(judges(problem())) == 2


def test_rows_among_others_are_found_to_the_last_bit() -> None:
    luck = np.random.default_rng(3)
    seen = luck.integers(0, 4, (500, 3)) / 4
    x = np.vstack([seen[[3, 77]], np.nextafter(seen[[5]], 1), luck.random((4, 3))])
    found = {row.tobytes() for row in among(x, seen)}
    assert {row.tobytes() for row in x} & found == {row.tobytes() for row in x} & {row.tobytes() for row in seen}
    assert len(among(x, seen)) < 50
    assert len(among(np.empty((2, 0)), np.empty((3, 0)))) == 3
    assert len(among(x, np.empty((0, 3)))) == 0
