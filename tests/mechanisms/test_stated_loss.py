"""Mechanisms that state a privacy loss of their own: priced, put into words, and tried."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from fedpareto import (
    Chain,
    Data,
    Federation,
    Float,
    Lr,
    Objective,
    Privacy,
    Randomization,
    Training,
)
from fedpareto.errors import SettingError
from fedpareto.mechanisms import StatesLoss, hides_updates, states_loss
from fedpareto.testing import check_mechanism

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from own_mechanism import Laplace, Signs

TRAINING = Training(0.1, rounds=3, local_steps=1, sample_ratio=0.5)


@dataclass(frozen=True)
class Boasting(Laplace):
    """Says half the ε that it has."""

    def privacy_loss(self, values, replace):
        return super().privacy_loss({**values, "l1_norm": values["l1_norm"] / 2}, replace)


@dataclass(frozen=True)
class Silent(Laplace):
    """Promises nothing."""

    def privacy_loss(self, values, replace):
        return None


def federation(mechanism, objectives=(), **privacy):
    terms = Privacy(**{"target_delta": 1e-5, **privacy})
    return Federation(Data("digits", 20), Lr(), TRAINING, mechanism, objectives, privacy=terms)


def test_the_example_keeps_what_it_says_and_one_that_says_half_does_not():
    assert isinstance(Laplace(0.5), StatesLoss)
    assert states_loss(Signs(0.1)) is None
    check_mechanism(Laplace(0.5))
    with pytest.raises(AssertionError, match=r"privacy_loss must hold for an update of length .*: its δ at ε = "):
        check_mechanism(Boasting(0.5))


def test_an_infinite_update_must_be_hidden_too():
    @dataclass(frozen=True)
    class Open(Laplace):
        def protect(self, upload, values, noise):
            out = super().protect(upload, values, noise)
            return upload.dense(torch.where(upload.values.isfinite(), out.values, upload.values))

    with pytest.raises(AssertionError, match="what hides an infinite update must be finite"):
        check_mechanism(Open(0.5))


@pytest.mark.parametrize(("privacy", "factor"), [({}, 1), ({"adjacency": "replace"}, 2), ({"unit": "record"}, 2)])
def test_epsilon_is_what_is_stated_over_all_rounds_in_every_view(privacy, factor):
    problem = federation(Laplace(Float("scale", 0.5, 20.0)), **privacy)
    columns = problem.columns({"scale": [1.0, 10.0, 10.0]}, 3)
    for i, scale in enumerate([1.0, 10.0, 10.0]):
        assert columns["epsilon"][i] <= 3 * factor / scale * (1 + 1e-3)
        assert columns["epsilon"][i] > 2 * factor / scale
    assert (columns["epsilon_server"] == columns["epsilon_release"]).all()
    promised = problem.guarantee({"scale": 10.0})
    assert promised.epsilon == pytest.approx(columns["epsilon"][1])
    words = promised.statement()
    assert "It counts 3 rounds of an upload of the same client each; accountant: the loss that Laplace states" in words
    assert any("check_mechanism tries it" in note for note in promised.notes)


def test_whoever_sees_models_has_the_epsilon_of_uploads_and_is_told_why():
    seen = federation(Laplace(5.0)).guarantee({}, "release")
    assert any("Sums and models are made of uploads" in note for note in seen.notes)
    assert seen.view == "release"


def test_one_that_says_none_is_promised_nothing_and_no_epsilon_may_be_asked_of_it():
    silent = federation(Silent(0.5))
    assert silent.guarantee({}) is None
    assert math.isinf(silent.columns({}, 1)["epsilon"][0])
    with pytest.raises(SettingError, match="must add noise where ε is asked for"):
        federation(Silent(0.5), (Objective("epsilon"),))
    asked = federation(Laplace(Float("scale", 0.5, 1.0)), (Objective("epsilon"),))
    assert asked.known({"scale": [0.5]}, ["epsilon"])["epsilon"][0] > 0


def test_in_a_chain_nothing_is_promised_of_it_and_noise_after_it_does_not_count_zero_as_hidden():
    chained = federation(Chain((Laplace(0.5), Signs(0.1))))
    assert chained.guarantee({}) is None
    before = Chain((Laplace(0.5), Randomization(1.0, 1.0)))
    assert not hides_updates(before)
    assert hides_updates(replace(before, links=before.links[1:]))


def test_a_search_on_private_data_has_no_known_bound():
    problem = federation(Laplace(5.0), private_data=True)
    assert problem.search_guarantee([{}], 1, 1, "listed") is None
