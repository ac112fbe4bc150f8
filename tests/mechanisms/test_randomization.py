"""Clipping and noise."""

from __future__ import annotations

import pytest
import torch

from fedpareto.mechanisms import Randomization, Upload
from fedpareto.noise import Noise
from fedpareto.space import Float
from fedpareto.testing import check_mechanism


def protect(sent, sigma, clip, seed=0):
    R, K, P = sent.shape
    one = torch.ones(R, K)
    values = {"sigma": torch.full((R,), sigma), "clipping_norm": torch.full((R,), clip)}
    return Randomization(0.0).protect(Upload(sent, one * P, one * 32, one * 0), values, Noise(seed, 0, range(K)))


def test_ranges_keep_the_contract():
    check_mechanism(Randomization(Float("sigma", 0.1, 1.0), Float("clipping_norm", 0.1, 1.0)))


def test_a_long_update_is_scaled_to_the_norm_and_a_short_one_is_left():
    sent = torch.tensor([[[3.0, 4.0], [0.3, 0.4]]])
    out = protect(sent, sigma=0.0, clip=1.0).values
    assert out[0, 0].tolist() == pytest.approx([0.6, 0.8])
    assert out[0, 1].tolist() == pytest.approx([0.3, 0.4])


def test_an_update_of_zero_stays_zero():
    assert protect(torch.zeros(1, 2, 3), sigma=0.0, clip=1.0).values.abs().max() == 0


def test_the_noise_has_the_stated_spread_and_differs_between_clients():
    out = protect(torch.zeros(1, 4, 50_000), sigma=0.5, clip=1.0).values[0]
    assert out.std(dim=1).tolist() == pytest.approx([0.5] * 4, rel=0.02)
    assert float(torch.corrcoef(out)[0, 1].abs()) < 0.02


def test_the_size_of_the_upload_is_what_it_was():
    out = protect(torch.ones(2, 3, 7), 0.1, 1.0)
    assert out.count.tolist() == [[7.0] * 3] * 2
    assert out.bits.tolist() == [[32.0] * 3] * 2
