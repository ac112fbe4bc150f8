"""Planted records: no auditor who knows all else shows more than the ε that is claimed for a record, and faults are seen.

Every client holds the same: records that train nothing, and one canary, whose gradient is as long as can be. Noise is own to each
client, so one training of many clients is as many audits' worth of canaries; who looks on sees every upload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from canary_bounds import by_counting, by_fit, chosen
from torch import nn

from fedpareto import Data, DpSgd, Federation, Privacy, Training, Unprotected
from fedpareto.federation.observer import Observer
from fedpareto.noise import Noise

CLIENTS, HELD, RATE = 500, 20, 0.1


def records():
    """Return records of which the first half are canaries of one direction and the others have no gradient."""
    x = np.zeros((CLIENTS * HELD, 3), np.float32)
    x[: len(x) // 2, 0] = 1.0
    y = np.where(x[:, 0] > 0, -1e6, 0.0).astype(np.float32)
    return x, y, x[:2], y[:2]


@dataclass(frozen=True)
class Line:
    """A line through zero."""

    def build(self, shape, classes):
        return nn.Linear(3, 1, bias=False)


class World(Observer):
    """Leaves each client its records without a gradient and, where the canary is in, one canary; adds up what uploads show."""

    def __init__(self, canary: bool, unit: float) -> None:
        self.canary = canary
        self.unit = unit
        self.scores = np.zeros(CLIENTS)

    def records(self, repeat, client, records):
        half = CLIENTS * HELD // 2
        first = np.flatnonzero(records < half)[: int(self.canary)]
        return np.concatenate([records[first], records[records >= half]])

    def uploads(self, repeat, round, clients, takes_part, upload):
        self.scores[clients] -= upload.values[0, :, 0].numpy() / self.unit


def federation(noise: float, *, batch=HELD, rounds=1, steps=1, batches="poisson", epochs=0, norm=0.7, **privacy) -> Federation:
    training = Training(RATE, rounds=rounds, local_steps=0 if epochs else steps, local_epochs=epochs, batch_size=batch, loss="mse",
                        evaluate_every=rounds, device="cpu")
    return Federation(Data("test_record_canaries:records", CLIENTS), Line(), training, Unprotected(), (),
                      privacy=Privacy(unit="record", **{"target_delta": 1e-5} | privacy), local=DpSgd(noise, norm, batches))


def scores(problem: Federation, seed: int) -> np.ndarray:
    """Return what an onlooker makes of each client's uploads in both worlds, [clients, 2]: with the canary and without."""
    seen = []
    for canary in (True, False):
        unit = RATE * problem.local.record_clipping_norm / problem.training.batch_size
        world = World(canary, unit)
        problem.train({}, 2 * seed + canary, world)
        seen.append(world.scores)
    return np.stack(seen, axis=1)


EXACT = {  # every record in every step or pass: the statistic is Gaussian
    "one step": {"noise": 1.0},
    "12 steps": {"noise": 4.0, "rounds": 3, "steps": 4},
    "shuffled, 6 passes": {"noise": 3.0, "rounds": 3, "epochs": 2, "batches": "shuffled"},  # as one batch each: only ends are seen
}
DRAWN = {
    "half of them, one step": {"noise": 0.5, "batch": 10, "target_delta": 0.01},
    "a quarter, 6 steps": {"noise": 0.8, "batch": 5, "rounds": 2, "steps": 3, "target_delta": 0.01},
}


def estimate(problem: Federation, seed: int, exact: bool) -> float:
    delta = problem.privacy.delta(1)
    if exact:
        return by_fit(scores(problem, seed), delta)
    rule = chosen(scores(problem, seed + 10**6), CLIENTS, delta)
    return by_counting(scores(problem, seed), rule, delta)


CASES = {name: (federation(**case), True) for name, case in EXACT.items()} | {name: (federation(**case), False) for name, case in DRAWN.items()}


QUICK = ("one step", "half of them, one step")


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_record_shows_no_more_than_is_claimed(name):
    problem, exact = CASES[name]
    claim = problem.guarantee({}).epsilon
    found = estimate(problem, 77, exact)
    assert (0.5 if exact else 0.1) * claim < found <= claim


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "exact"), CASES.values(), ids=CASES)
def test_of_many_audits_none_is_above_the_claim(problem, exact):
    claim = problem.guarantee({}).epsilon
    found = np.array([estimate(problem, seed, exact) for seed in range(50)])
    print(f"claim {claim:.3f}, above {(found > claim).sum()}, median {np.median(found) / claim:.2f}, most {found.max() / claim:.2f}", flush=True)
    assert (found > claim).sum() <= 1  # each is right at 99.9 % confidence
    assert np.median(found) > (0.5 * claim if exact else 0)


def weaker(self, size, out=None, own=Noise.normal):
    return own(self, size, out).mul_(0.7)


FAULTS = {
    "noise too weak": lambda patch: patch.setattr(Noise, "normal", weaker),
    "a norm twice as long": lambda patch: patch.setattr("fedpareto.federation.records.shares", twice),
}


def twice(squares, weight, norm, rounding):
    from fedpareto.federation import records

    return records.__dict__["_right_shares"](squares, weight, 2 * norm, rounding)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault, monkeypatch):
    from fedpareto.federation import records

    problem, _ = CASES["one step"]
    claim = problem.guarantee({}).epsilon
    monkeypatch.setattr(records, "_right_shares", records.shares, raising=False)
    FAULTS[fault](monkeypatch)
    assert estimate(problem, 5, True) > claim
