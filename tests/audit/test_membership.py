"""Membership: the attack tells members where a model has learnt them by heart, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from fedpareto import (
    Chain,
    Data,
    Federation,
    Float,
    Mlp,
    Privacy,
    Randomization,
    Training,
    load_study,
)
from fedpareto.audit import Membership, Points
from fedpareto.audit.lira import auc, found_at, likelihood_ratios, roc, told
from fedpareto.audit.shadows import members, shadows
from fedpareto.federation import blocks
from fedpareto.mechanisms import BatchCrypt
from fedpareto.noise import derive
from fedpareto.testing import check_attack

SIGMA = Float("sigma", 0.0, 10.0)


def points(sigmas=(0.0,), rounds=15, epochs=1, share=1.0, clients=10, private=False, mechanism=None):
    training = Training(0.3, rounds=rounds, local_epochs=epochs, batch_size=16, sample_ratio=0.3, evaluate_every=rounds)
    problem = Federation(Data("digits", clients, share=share), Mlp((32,)), training, mechanism or Randomization(SIGMA, 2.0), (),
                         privacy=Privacy(private_data=private))
    return Points(problem, tuple(range(len(sigmas))), tuple({"sigma": s} for s in sigmas))


def found(asked, view="release", n=24, seed=0):
    return [f.measures for f in Membership(n).audit(asked, view, seed)]


def test_members_are_told_where_they_are_learnt_by_heart_and_not_behind_noise():
    loose = Randomization(SIGMA, 100.0)
    plain, noisy = found(points((0.0, 10.0), rounds=20, epochs=5, share=0.15, clients=4, mechanism=loose))
    assert plain["auc"] > 0.56
    assert plain["client_auc"] > 0.6
    assert noisy["auc"] == pytest.approx(0.5, abs=0.03)
    assert plain["tpr_at_0.001"] <= plain["tpr_at_0.01"] <= 1
    assert plain["shadow_error"] < 0.4 < noisy["shadow_error"]


def test_uploads_tell_more_of_a_record_than_sums_these_than_the_last_model_and_noise_hides_it():
    asked = points((0.0, 0.3), rounds=6, share=0.3)
    last, sums, uploads = (found(asked, view) for view in ("release", "secagg", "server"))
    assert uploads[0]["auc"] > sums[0]["auc"] + 0.03 > last[0]["auc"] + 0.05
    assert uploads[0]["auc"] > uploads[1]["auc"] + 0.02
    assert sums[0]["auc"] > sums[1]["auc"] + 0.02
    for measures in (uploads[0], sums[0]):
        assert "client_auc" not in measures  # who takes part is no secret


@pytest.mark.slow
def test_the_quickstart_is_near_chance_and_the_overfitted_example_is_not():
    (quickstart,) = found(points((0.03,)), n=256)
    problem = load_study(Path(__file__).parents[2] / "examples" / "overfitted.toml").problem
    (by_heart,) = found(Points(problem, (0,), ({"sigma": 0.0, "clipping_norm": 100.0},)), n=256)
    for measures in (quickstart, by_heart):
        print({name: m for name, m in measures.items() if "roc" not in name})
    assert quickstart["auc"] < 0.54
    assert by_heart["auc"] >= 0.58


# the statistics


@pytest.mark.parametrize("seed", range(5))
def test_auc_and_roc_are_those_of_scikit_learn(seed):
    draw = np.random.default_rng(seed)
    member = draw.random(3000) < 0.4
    scores = np.round(draw.normal(size=3000) + member, seed)  # with ties
    assert auc(scores, member) == pytest.approx(roc_auc_score(member, scores), abs=1e-12)
    wrong, right, _ = roc_curve(member, scores, drop_intermediate=False)
    ours = roc(scores, member)
    np.testing.assert_allclose(ours[0], wrong, atol=1e-12)
    np.testing.assert_allclose(ours[1], right, atol=1e-12)
    for rate in (0.001, 0.01, 0.1):
        assert found_at(ours, rate) == pytest.approx(right[wrong <= rate].max())


def test_likelihood_ratios_are_those_of_gaussians():
    """Of records with known means the attack is as good as the best there is: AUC = Φ(d / √2)."""
    draw = np.random.default_rng(0)
    member = draw.random((400, 300)) < 0.5
    hard = draw.normal(0, 5, size=300)
    seen = draw.normal(size=member.shape) + hard + 1.5 * member
    measures = told(likelihood_ratios(seen, member), member)
    assert measures["auc"] == pytest.approx(norm.cdf(1.5 / 2**0.5), abs=0.01)
    assert auc(seen.ravel(), member.ravel()) < 0.6  # without shadows a hard record is not told from an easy one
    nothing = told(likelihood_ratios(draw.normal(size=member.shape) + hard, member), member)
    assert nothing["auc"] == pytest.approx(0.5, abs=0.01)


def test_what_nobody_saw_is_left_out():
    draw = np.random.default_rng(0)
    member = draw.random((40, 100)) < 0.5
    seen = draw.normal(size=member.shape) + 3 * member
    seen[draw.random(member.shape) < 0.3] = np.nan
    ratios = likelihood_ratios(seen, member)
    assert (np.isnan(ratios) == np.isnan(seen)).all()
    assert told(ratios, member)["auc"] > 0.95
    assert np.isnan(auc(np.zeros(3), np.ones(3, dtype=bool)))


def test_the_curve_rises_to_one():
    draw = np.random.default_rng(0)
    member = draw.random((20, 100)) < 0.5
    curve = np.array(told(draw.normal(size=member.shape) + member, member)["roc"])
    assert (np.diff(curve, axis=0) >= 0).all()
    assert curve[-1].tolist() == [1.0, 1.0]


# shadows


def test_each_record_and_each_client_is_in_half_of_the_shadows():
    split = blocks.setup_of(points().problem, 0).train_split()
    for of, n in (("record", 1438), ("client", 10)):
        member = members(split, 40, 0, of)
        assert member.shape == (40, n)
        assert np.abs(member.mean(0) - 0.5).max() <= 0.05
    assert all(members(split, 40, 0, "record")[:, split.of(k)].any(1).all() for k in range(10))
    assert members(split, 40, 3, "client").any(1).all()


def test_draws_for_all_clients_at_once_are_as_random_as_one_by_one():
    repeat = replace(blocks.setup_of(points().problem, 3), together=True)
    drawn = {t: repeat.noise(t, np.arange(8), "cpu").normal(20_000) for t in (0, 1)}
    for z in drawn.values():
        assert z.shape == (8, 20_000)
        assert abs(float(z.mean())) < 0.01
        assert abs(float(z.var()) - 1) < 0.02
    together = np.corrcoef(np.concatenate([z.numpy() for z in drawn.values()]))
    assert np.abs(together - np.eye(16)).max() < 0.04
    again = replace(blocks.setup_of(points().problem, 3), together=True)
    assert (again.noise(1, np.arange(8), "cpu").normal(20_000) == drawn[1]).all()
    assert (again.draw(0, 1).random(5) == repeat.draw(0, 1).random(5)).all()
    first, second = repeat.draw(0, 1).random(5), repeat.draw(0, 1).random(5)
    assert (first != second).all()


def test_a_shadow_with_everything_in_is_the_training_itself(monkeypatch):
    """So what is attacked is what trains: here no half is left out, and the models are those of the study."""
    import torch

    from fedpareto.audit import shadows as module

    asked, kept = points((0.1,), rounds=3), []

    def as_in_the_study(held, **changes):
        return replace(held, **{name: value for name, value in changes.items() if name != "together"})

    monkeypatch.setattr(module, "members", lambda split, n, seed, of: np.ones((n, 1438 if of == "record" else 10), dtype=bool))
    error = module.Shadow.error

    def keep(self):
        kept.append(self.ends)
        return error(self)

    monkeypatch.setattr(module.Shadow, "error", keep)
    monkeypatch.setattr(module, "replace", as_in_the_study)
    seed = derive(0, "shadow")
    model, measures = asked.problem.train({"sigma": 0.1}, seed)
    for of in ("record", "client"):
        shown = shadows(asked, [seed], 0, of, "release", 500)
        assert shown.error[0] == pytest.approx(measures["test_error"], abs=1e-6)
        trained = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert torch.allclose(kept[-1][0, 0], trained, atol=1e-6)


def test_it_says_why_it_does_not_apply():
    why = Membership().inapplicable
    assert why(points(private=True), "release") == "data are private: a training for an attack would cost privacy that is counted nowhere"
    encrypted = points(mechanism=Chain((Randomization(SIGMA, 1.0), BatchCrypt())))
    assert "ciphertexts" in why(encrypted, "server")
    assert why(encrypted, "secagg") is why(encrypted, "release") is None


def test_it_holds_what_an_attack_must():
    check_attack(Membership(), points((0.0, 0.1), rounds=2, share=0.2))
    assert Membership(100).within(0.5).shadows == 50


def test_numbers_that_are_predicted_are_told_by_their_loss(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 5)).astype(np.float32)
    path, y = tmp_path / "numbers.npz", x.sum(1) + 2 * draw.normal(size=60).astype(np.float32)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=x.sum(1))
    training = Training(0.05, rounds=25, local_epochs=5, batch_size=4, loss="mse", evaluate_every=25)
    problem = Federation(Data(str(path), 2), Mlp((64,)), training, Randomization(Float("sigma", 0.0, 1.0), 10.0), ())
    (measures,) = found(Points(problem, (0,), ({"sigma": 0.0},)))
    assert measures["auc"] > 0.6
