"""Records that local steps hide: planted ones show much of the ε and no more, and each fault is found."""

from __future__ import annotations

import pytest

from fedpareto import (
    Chain,
    Data,
    DpSgd,
    Federation,
    Float,
    Integer,
    Mlp,
    Privacy,
    Training,
    Unprotected,
)
from fedpareto.audit import Canary, Membership, Points, WhiteBox
from fedpareto.federation import records
from fedpareto.mechanisms import BatchCrypt, Randomization
from fedpareto.noise import Noise
from fedpareto.testing import check_attack


def points(noise=3.0, rounds=3, steps=4, batch=71, batches="poisson", epochs=0, mechanism=None, **privacy):
    """Return one point of twenty clients with at least 71 records each: of such a batch every step has all."""
    training = Training(0.1, rounds=rounds, local_steps=0 if epochs else steps, local_epochs=epochs, batch_size=batch, sample_ratio=0.5,
                        evaluate_every=rounds)
    problem = Federation(Data("digits", 20), Mlp((8,)), training, mechanism or Unprotected(), (), local=DpSgd(noise, 0.7, batches),
                         privacy=Privacy(unit="record", **{"target_delta": 1e-5} | privacy))
    return Points(problem, (0,), ({},))


SHUFFLED = {"batches": "shuffled", "epochs": 2, "batch": 64}
CASES = {  # and how much of the claim is shown at the least
    "all in every step": ({}, 0.75), "shuffled": (SHUFFLED, 0.7), "replaced": (SHUFFLED | {"adjacency": "replace"}, 0.75),
    "three of a person": ({"noise": 8.0, "rounds": 1, "records_per_person": 3}, 0.5),
    "by chance": ({"noise": 0.6, "rounds": 2, "steps": 1, "batch": 8}, 0.4),
    "by chance, replaced": ({"noise": 0.6, "rounds": 2, "steps": 2, "batch": 8, "adjacency": "replace"}, 0.2)}


def found(attack, asked, seed=0):
    (finding,) = attack.audit(asked, "server", seed)
    return finding.measures


@pytest.mark.parametrize("case", CASES)
def test_a_planted_record_shows_much_of_the_claim_and_no_more(case):
    asked, share = points(**CASES[case][0]), CASES[case][1]
    measures = found(Canary(1000), asked)
    assert measures["epsilon"] == asked.problem.columns({}, 1, ("server",))["epsilon_server"][0]
    assert share * measures["epsilon"] < measures["epsilon_hat"] <= measures["epsilon"]
    assert (measures["unit"], measures["alarm"]) == ("record", False)
    by_chance = case.startswith("by chance")
    assert measures["form"] == ("loss distribution" if by_chance else "Gaussian fit")
    assert measures["canaries"] == (3000 if by_chance else 1000)


@pytest.mark.slow
def test_of_many_audits_of_records_hardly_one_is_above_the_claim():
    for case in CASES.values():
        asked = points(**case[0])
        claim = float(asked.claim("server")[0])
        above = sum(Canary(200)._measured(asked, "server", seed, 0)[0]["epsilon_hat"] > claim for seed in range(100))
        print(case, "above the claim:", above, "of 100")
        assert above <= 2


def test_the_noise_of_steps_is_found_to_be_as_stated():
    for case in ({}, SHUFFLED, {"noise": 0.6, "rounds": 2, "steps": 1, "batch": 8}):
        measures = found(WhiteBox(), points(**case))
        assert not measures["alarm"]
        assert measures["strength"] == pytest.approx(1.0, abs=0.02)


def weaker(own=Noise.normal):
    return lambda self, size, out=None: own(self, size, out).mul_(0.9)


def streams(fault):
    return lambda patch: patch.setattr("fedpareto.federation.setup.Noise", lambda *terms: Noise(*fault(*terms)))


def longer(patch):
    own = records.shares
    patch.setattr(records, "shares", lambda squares, weight, norm, rounding: own(squares, weight, 1.3 * norm, rounding))


def every_step(patch):
    patch.setattr("fedpareto.federation.setup.chance", lambda batch, size: 1.0)


FAULTS = {
    "10 % too weak": (lambda patch: patch.setattr(Noise, "normal", weaker()), WhiteBox(), {}, "variance "),
    "shared by clients": (streams(lambda seed, t, who, device: (seed, t, [0] * len(who), device)), WhiteBox(), {}, "rows alike "),
    "shared by rounds": (streams(lambda seed, t, *rest: (seed, 0, *rest)), WhiteBox(), {}, "sums over each round "),
    "shared by trainings": (streams(lambda seed, *rest: (0, *rest)), WhiteBox(), {}, "rows alike "),
    "clipped to more": (longer, Canary(1000), {}, ""),
    "not drawn by chance": (every_step, Canary(1000), {"noise": 0.6, "rounds": 2, "steps": 1, "batch": 8}, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_local_steps_is_found_twice(monkeypatch, fault):
    put_in, attack, case, name = FAULTS[fault]
    put_in(monkeypatch)
    measures = found(attack, points(**case))
    assert measures["alarm"]
    assert name in measures.get("why", "")


def test_private_data_are_not_touched_and_noise_that_trials_share_is_found(monkeypatch):
    searched = Federation(Data("digits", 20), Mlp((8,)), Training(0.1, rounds=2, local_steps=2, batch_size=8), Unprotected(), (),
                          local=DpSgd(Float("record_noise_multiplier", 0.5, 5.0), 1.0), privacy=Privacy(unit="record", private_data=True))
    asked = Points(searched, (0, 1), ({"record_noise_multiplier": 1.0}, {"record_noise_multiplier": 2.0}))
    assert not any(f.measures["alarm"] for f in WhiteBox().audit(asked, "server", 0))
    monkeypatch.setattr("fedpareto.audit.noise.row_seeds", lambda problem, values, seeds: list(seeds))
    for finding in WhiteBox().audit(asked, "server", 0):
        assert finding.measures["alarm"]
        assert "trials alike" in finding.measures["why"]


def test_it_says_from_where_records_are_attacked():
    for attack in (Canary(), WhiteBox()):
        assert attack.inapplicable(points(), "server") is None
        for view in ("secagg", "release"):
            assert attack.inapplicable(points(), view) == (
                "the ε is that of a record, hidden by noise in the steps of its client, and counts what that client sends alone: see server")
        encrypted = points(mechanism=Chain((Randomization(1.0, 1.0), BatchCrypt())))
        assert "ciphertexts" in attack.inapplicable(encrypted, "server")
    assert Membership().inapplicable(points(), "release") is None


def test_points_of_other_batches_and_lengths_hold_what_an_attack_must():
    training = Training(0.1, rounds=Integer("rounds", 1, 3), local_steps=2, batch_size=Integer("batch_size", 4, 16), sample_ratio=0.5)
    problem = Federation(Data("digits", 20), Mlp((8,)), training, Unprotected(), (), local=DpSgd(1.0, 1.0), privacy=Privacy(unit="record"))
    asked = Points(problem, (0, 1), ({"rounds": 1, "batch_size": 16}, {"rounds": 3, "batch_size": 5}))
    for attack in (Canary(), WhiteBox()):
        check_attack(attack, asked)
