"""What is promised of a round is what the engine does: empty rounds, chains, parameters, wild updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedpareto import Chain, Data, Federation, Lr, Privacy, Randomization, Training
from fedpareto.errors import SettingError
from fedpareto.federation.observer import Observer
from fedpareto.mechanisms import (
    BatchCrypt,
    Pruning,
    Quantization,
    Sparsification,
    Unprotected,
    Upload,
)
from fedpareto.noise import Noise
from fedpareto.privacy import epsilon
from fedpareto.settings import Real, setting


def federation(mechanism, sampling="poisson", cohort=1, clients=20, rounds=20, **privacy):
    training = Training(0.1, rounds=rounds, local_steps=1, batch_size=8, sampling=sampling, sample_ratio=cohort / clients)
    return Federation(Data("digits", clients), Lr(), training, mechanism, (), privacy=Privacy(**privacy))


class Models(Observer):
    """Keeps the models after each round, and how many came."""

    def __init__(self):
        self.after, self.came = [], []

    def sums(self, round, sums, cohorts):
        self.came.append(int(cohorts[0].count[0]))

    def models(self, round, models):
        self.after.append(models[0, 0].clone())


def test_a_round_in_which_nobody_comes_has_the_noise_of_any_other():
    seen = Models()
    federation(Randomization(0.5, 1.0), cohort=2).train({}, 3, seen)
    empty = [t for t, n in enumerate(seen.came) if n == 0 and t > 0]
    assert len(empty) >= 2
    steps = torch.stack([seen.after[t] - seen.after[t - 1] for t in empty])
    on_the_sum = 2 * steps  # the server divides by the clients expected
    assert float(on_the_sum.std()) == pytest.approx(0.5 * 2**0.5, rel=0.1)
    one, other = steps[:2]
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.2


def test_without_noise_an_empty_round_changes_nothing():
    seen = Models()
    federation(Unprotected(), cohort=2).train({}, 3, seen)
    empty = [t for t, n in enumerate(seen.came) if n == 0 and t > 0]
    assert empty
    assert all(torch.equal(seen.after[t], seen.after[t - 1]) for t in empty)


def test_noise_after_an_encrypted_sum_is_refused():
    with pytest.raises(SettingError, match=r"links: noise must come before .* found Randomization after BatchCrypt.*Put the noise first"):
        Chain((BatchCrypt(), Randomization(0.1)))
    Chain((Randomization(0.1), BatchCrypt()))


@pytest.mark.parametrize("later", [Quantization(2), Pruning(0.5), BatchCrypt(), Sparsification(private_fraction=0.5), Randomization(0.01)])
def test_a_sum_of_uploads_changed_after_their_noise_counts_one_clients_noise_alone(later):
    plain = federation(Randomization(0.5), "fixed", 4).columns({}, 1)
    found = federation(Chain((Randomization(0.5), later)), "fixed", 4).columns({}, 1)
    assert found["epsilon_secagg"] == found["epsilon_server"] == plain["epsilon_server"] > plain["epsilon_secagg"]
    assert plain["epsilon_release"] < found["epsilon_release"] < found["epsilon_server"]


@pytest.mark.parametrize("earlier", [Quantization(2), Pruning(0.5), Sparsification(private_fraction=0.5), Unprotected()])
def test_what_comes_before_the_noise_costs_nothing(earlier):
    plain = federation(Randomization(0.5), "fixed", 4).columns({}, 1)
    found = federation(Chain((earlier, Randomization(0.5))), "fixed", 4).columns({}, 1)
    assert all(found[f"epsilon_{view}"] == plain[f"epsilon_{view}"] for view in ("server", "secagg", "release"))


def test_under_poisson_sampling_noise_that_is_not_last_has_its_least_share():
    chain = Chain((Randomization(0.5), Quantization(4)))
    found = federation(chain, "poisson", 5).columns({}, 1)
    assert found["epsilon_secagg"] == found["epsilon_server"]
    assert found["epsilon_secagg"] > federation(Randomization(0.5), "fixed", 5).columns({}, 1)["epsilon_server"]


def test_noise_on_parameters_is_promised_against_a_replaced_client():
    left_out = federation(Randomization(1.0, of="parameters"), "fixed", 20, rounds=1, target_delta=1e-5)
    assert left_out.columns({}, 1)["epsilon_server"] == pytest.approx(9.997256146434315, rel=1e-6)
    promised = left_out.guarantee({})
    assert promised.adjacency == "replace"
    assert promised.epsilon == pytest.approx(9.997256146434315, rel=1e-6)


def test_what_32_bits_take_from_noise_and_add_to_norms_is_counted():
    """Training rounds both: with σ = 0.7 and c = 1.1 its ratio of noise to norm is a little less than of the numbers given."""
    found = federation(Randomization(0.7, 1.1), "fixed", 20, rounds=100, target_delta=1e-5).columns({}, 1)["epsilon_server"]
    kept = Privacy(target_delta=1e-5)
    real = epsilon(kept, noise=float(np.float32(0.7)), clipping_norm=1.1000001, cohort=20, clients=20, rounds=100, sampling="fixed")
    assert found >= real


def test_weights_by_size_promise_nothing_of_a_replaced_client():
    """Who sees uploads and models learns the sizes, so a client of another size could be told from it."""
    def problem(adjacency):
        training = Training(0.1, rounds=2, local_steps=1, batch_size=8, weighting="size")
        return Federation(Data("digits", 20), Lr(), training, Randomization(0.7), (), privacy=Privacy(adjacency=adjacency))

    assert np.isnan(problem("replace").columns({}, 1)["epsilon_server"])
    assert problem("replace").guarantee({}) is None
    left_out = problem("zero_out").guarantee({})
    assert any("which is taken to be known" in note for note in left_out.notes)


@pytest.mark.parametrize(("wild", "kept"), [
    ([torch.inf, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]), ([-torch.inf, 0.0, torch.inf, 5.0], [-(0.5**0.5), 0.0, 0.5**0.5, 0.0]),
    ([torch.nan, 3.0, 0.0, 4.0], [0.0, 0.6, 0.0, 0.8]), ([torch.nan] * 4, [0.0] * 4), ([3e38] * 4, [0.5] * 4)])
def test_an_update_that_is_not_finite_is_clipped_like_any_other(wild, kept):
    one = torch.ones(1, 2)
    upload = Upload(torch.tensor([[wild, [0.1, 0.0, 0.0, 0.0]]]), one * 4, one * 32, one * 0)
    values = {"sigma": torch.zeros(1), "clipping_norm": torch.ones(1)}
    found = Randomization(0.0).protect(upload, values, Noise(0, 0, range(2))).values[0]
    np.testing.assert_allclose(found[0], kept, rtol=1e-6)
    np.testing.assert_allclose(found[1], [0.1, 0.0, 0.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("clipping_norm", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("value", [7e37, 2e38, 3.4e38])
def test_an_update_near_the_largest_float_is_clipped_to_the_norm_exactly(value, clipping_norm):
    one = torch.ones(1, 1)
    upload = Upload(torch.full((1, 1, 1000), value), one * 1000, one * 32, one * 0)
    values = {"sigma": torch.zeros(1), "clipping_norm": torch.full((1,), clipping_norm)}
    found = Randomization(0.0, clipping_norm).protect(upload, values, Noise(0, 0, [0])).values
    assert float(found.double().norm()) == pytest.approx(clipping_norm, rel=1e-6)


def test_a_huge_update_does_not_touch_what_others_send():
    one = torch.ones(1, 2)
    values = {"sigma": torch.ones(1), "clipping_norm": torch.full((1,), 1e-3)}
    sent = []
    for other in (1.0, 3e38, torch.inf):
        updates = torch.stack([torch.linspace(-1, 3, 1000), torch.full((1000,), other)])[None]
        upload = Upload(updates, one * 1000, one * 32, one * 0)
        sent.append(Randomization(1.0, 1e-3).protect(upload, values, Noise(0, 0, range(2))).values[0, 0])
    assert torch.equal(sent[0], sent[1])
    assert torch.equal(sent[0], sent[2])


@pytest.mark.parametrize("length", [1e25, 1e30, 3e38])
@pytest.mark.parametrize("clip", [1.0, 1e-5, 1e-9])
def test_an_update_too_long_for_float32_to_scale_is_clipped_to_the_norm(length, clip):
    one = torch.ones(1, 1)
    upload = Upload(torch.full((1, 1, 650), length), one * 650, one * 32, one * 0)
    values = {"sigma": torch.zeros(1), "clipping_norm": torch.full((1,), clip)}
    found = Randomization(0.0).protect(upload, values, Noise(0, 0, range(1))).values
    assert float(found.double().norm()) == pytest.approx(clip, rel=1e-5)


class NoiseAlone(Observer):
    """Plants updates of zero, and keeps the sums: they are noise."""

    def updates(self, repeat, round, clients, updates):
        return torch.zeros_like(updates)

    def sums(self, round, sums, cohorts):
        self.spread = float(sums.std())


@dataclass(frozen=True)
class Own:
    """Has settings whose names columns use for something else."""

    sigma: Real = setting(2.0, help="noise in units of clipping_norm")
    clipping_norm: Real = setting(0.25, help="largest norm")
    delta: float = setting(3.0, help="by which the noise is multiplied")

    def gaussian(self, values):
        return values["sigma"] * values["clipping_norm"] * values["delta"], values["clipping_norm"]

    def protect(self, upload, values, noise):
        return Randomization(1.0).protect(upload, values | {"sigma": self.gaussian(values)[0]}, noise)


@pytest.mark.parametrize("clip", [0.25, 4.0])
@pytest.mark.parametrize("make", [
    lambda clip: Randomization(0.5, clip), lambda clip: Randomization(noise_multiplier=1.0, clipping_norm=clip),
    lambda clip: Randomization(noise_multiplier=1.0, clipping_norm=clip, clipping="printed"), lambda clip: Own(clipping_norm=clip)])
def test_the_noise_that_is_promised_is_the_noise_that_training_adds(make, clip):
    seen = NoiseAlone()
    problem = federation(make(clip), "fixed", 4, rounds=1)
    problem.train({}, 0, seen)
    assert seen.spread == pytest.approx(2 * problem.columns({}, 1)["sigma"][0], rel=0.1)


def test_settings_named_sigma_and_norm_promise_nothing():
    @dataclass(frozen=True)
    class Loud:
        sigma: float = setting(1.0, help="not noise")
        norm: float = setting(1.0, help="not a bound")

        def protect(self, upload, values, noise):
            return upload

    problem = federation(Loud())
    assert problem.columns({}, 1)["epsilon_server"] == np.inf
    assert problem.guarantee({}) is None


@pytest.mark.parametrize("earlier", [Pruning(0.5, of="parameters"), Quantization(2, of="parameters")])
def test_what_moves_an_update_of_zero_before_the_noise_is_promised_against_a_replaced_client(earlier):
    plain = federation(Randomization(0.5, of="parameters"), "fixed", 4).columns({}, 1)
    found = federation(Chain((earlier, Randomization(0.5))), "fixed", 4).columns({}, 1)
    after = federation(Chain((Randomization(0.5), earlier)), "fixed", 4).columns({}, 1)
    assert found["epsilon_server"] == plain["epsilon_server"] > after["epsilon_server"]


def test_two_links_with_noise_train_through_an_empty_round():
    seen = Models()
    federation(Chain((Randomization(0.1), Randomization(0.5))), cohort=2, rounds=8).train({}, 3, seen)
    assert 0 in seen.came
    assert all(bool(model.isfinite().all()) for model in seen.after)


@pytest.mark.parametrize("mechanism", [Unprotected(), Quantization(4), BatchCrypt()])
def test_an_absent_client_with_an_update_that_is_not_finite_spoils_nothing(mechanism):
    class Absent(Models):
        def cohort(self, repeat, round, cohort):
            return cohort.without(0)

        def updates(self, repeat, round, clients, updates):
            absent = torch.from_numpy(clients == 0)
            return updates.masked_fill(absent[None, :, None], torch.nan)

    seen = Absent()
    federation(mechanism, cohort=4, clients=5, rounds=2).train({}, 3, seen, more=1)
    assert all(bool(model.isfinite().all()) for model in seen.after)
