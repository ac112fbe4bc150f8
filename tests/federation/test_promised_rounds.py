"""What is promised of a round is what the engine does: empty rounds, chains, parameters, wild updates."""

from __future__ import annotations

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
    assert left_out.columns({}, 1)["epsilon_server"] == pytest.approx(9.997256146434315, rel=1e-9)
    promised = left_out.guarantee({})
    assert promised.adjacency == "replace"
    assert promised.epsilon == pytest.approx(9.997256146434315, rel=1e-9)


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
