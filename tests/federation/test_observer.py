"""Observers see what each view sees, and may plant, force and leave out; without one nothing changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.errors import SettingError
from fedpareto.federation.block import prepare
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.data import Data
from fedpareto.federation.models import Lr
from fedpareto.federation.observer import Observer
from fedpareto.federation.problem import Federation
from fedpareto.federation.run import run
from fedpareto.federation.setup import Setup
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Randomization

RATIOS = torch.tensor([0.5, 0.5], dtype=torch.float64)


def block(sampling="fixed", slots=3, rounds=3, sigma=0.0, repeats=1):
    training = Training(0.1, rounds=rounds, local_steps=2, batch_size=8, sampling=sampling, sample_ratio=0.5)
    setups = [Setup(Data("digits", 6), Lr(), training, Randomization(0.1), seed) for seed in range(repeats)]
    settings = {"learning_rate": torch.tensor([0.1, 0.2]), "rounds": torch.tensor([float(rounds)] * 2), "sample_ratio": RATIOS,
                "sigma": torch.tensor([sigma, sigma]), "clipping_norm": torch.tensor([1.0, 1.0])}
    return prepare(setups, settings, [Lr()] * 2, slots)


class Silent(Observer):
    """Changes nothing."""


class Recorder(Observer):
    """Keeps all that it sees."""

    def __init__(self):
        self.seen = {"uploads": [], "sums": [], "models": [], "records": set()}

    def records(self, repeat, client, records):
        self.seen["records"].add((repeat, client))
        return records

    def uploads(self, repeat, round, clients, takes_part, upload):
        self.seen["uploads"].append((repeat, round, clients.copy(), takes_part.clone(), upload.values.clone()))

    def sums(self, round, sums, cohorts):
        self.seen["sums"].append((round, sums.clone(), cohorts))

    def models(self, round, models):
        self.seen["models"].append(models.clone())


def test_an_observer_that_does_nothing_changes_nothing():
    bare, watched = run(block(sigma=0.1))[0], run(block(sigma=0.1), Silent())[0]
    for name, figure in bare.figures.items():
        np.testing.assert_array_equal(figure, watched.figures[name])


def test_each_view_is_seen_and_they_agree():
    made, recorder = block(sigma=0.05, repeats=2), Recorder()
    _, state = run(made, recorder)
    seen = recorder.seen
    assert torch.equal(seen["models"][-1], state.models)
    for t, sums, cohorts in seen["sums"]:
        for s in range(2):
            mine = [u for u in seen["uploads"] if u[:2] == (s, t)]
            total = sum(torch.einsum("rk,rkp->rp", part.float(), values) for *_, part, values in mine)
            torch.testing.assert_close(sums[s], total, rtol=0, atol=1e-6)
            before = seen["models"][t - 1][s] if t else made.initial[s]
            torch.testing.assert_close(seen["models"][t][s], before + sums[s] / 3, rtol=0, atol=1e-6)
            assert (cohorts[s].count == 3).all()
            assert {int(k) for u in mine for k in u[2]} <= set(range(6))


def test_a_planted_update_is_what_is_protected_and_summed():
    planted = torch.full((2, 650), 0.01)

    class Plant(Observer):
        def updates(self, repeat, round, clients, updates):
            changed = updates.clone()
            for m, client in enumerate(clients.tolist()):
                if client == 4:
                    changed[:, m] = planted
            return changed

    class Both(Plant, Recorder):
        pass

    both = Both()
    run(block(), both)
    found = [values[:, list(clients).index(4)] for _, _, clients, _, values in both.seen["uploads"] if 4 in clients]
    assert found
    for values in found:
        torch.testing.assert_close(values, planted)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_client_may_be_forced_in_and_left_out(sampling):
    class Force(Recorder):
        def cohort(self, repeat, round, cohort):
            return cohort.without(0).joined_by(5)

    force = Force()
    run(block(sampling, slots=6, rounds=6), force)
    for _, _, cohorts in force.seen["sums"]:
        (found,) = cohorts
        for count in found.count:
            assert 5 in found.order[:count]
            assert 0 not in found.order[:count]
            assert sorted(found.order) == list(range(6))


def test_a_cohort_without_a_client_is_smaller_only_where_the_client_was_in_it():
    whole = Cohort(np.array([3, 1, 2, 0]), np.array([0, 1, 2, 4]))
    less = whole.without(1)
    assert less.order.tolist() == [3, 2, 0, 1]
    assert less.count.tolist() == [0, 1, 1, 3]
    more = whole.joined_by(2)
    assert more.order.tolist() == [2, 3, 1, 0]
    assert more.count.tolist() == [1, 2, 3, 4]


def test_records_left_out_change_what_their_client_trains_and_no_other():
    class Without(Recorder):
        def records(self, repeat, client, records):
            return records[1:] if client == 2 else records

    bare, without = Recorder(), Without()
    run(block(rounds=1, slots=6), bare)
    run(block(rounds=1, slots=6), without)
    for (_, _, clients, _, before), (_, _, same, _, after) in zip(bare.seen["uploads"], without.seen["uploads"], strict=True):
        assert (clients == same).all()
        for m, client in enumerate(clients):
            assert torch.equal(before[:, m], after[:, m]) == (client != 2)


def test_a_round_with_more_clients_than_the_block_has_slots_for_is_refused():
    class All(Observer):
        def cohort(self, repeat, round, cohort):
            return Cohort(cohort.order, cohort.count + 1)

    with pytest.raises(SettingError, match="a round must have at most 3 clients here, found 4"):
        run(block(), All())


def test_a_client_may_be_forced_in_while_a_point_is_trained():
    class Force(Recorder):
        def cohort(self, repeat, round, cohort):
            return cohort.joined_by(5)

    training = Training(0.1, rounds=4, local_steps=1, batch_size=8, sample_ratio=0.5)
    problem = Federation(Data("digits", 6), Lr(), training, Randomization(0.1), (), block=1)
    force = Force()
    with pytest.raises(SettingError, match="train with more = 1"):
        problem.train({}, 0, force)
    problem.train({}, 0, force, more=1)
    for _, _, (cohort,) in force.seen["sums"]:
        assert 5 in cohort.order[: cohort.count[0]]
