"""The quantiser: unbiased within the clip, never off by more than a step, and the best clip for its resolution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from fedpareto.crypto import Codec, clip_of, clip_ratio, dequantise, quantise
from fedpareto.errors import SettingError

FINITE = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(st.lists(FINITE, min_size=1, max_size=30), st.floats(0, 1e6, allow_subnormal=False), st.integers(1, 2**31 - 1),
       st.floats(0, 1, exclude_max=True))
def test_every_value_is_within_one_step_of_its_clipped_self(values, clip, magnitude, draw):
    """T12."""
    x = np.array(values)
    q = quantise(x, clip, magnitude, np.full(len(x), draw))
    assert q.dtype == np.int64
    assert np.abs(q).max() <= magnitude
    clipped = np.clip(x, -clip, clip)
    assert (np.abs(dequantise(q, clip, magnitude, 1) - clipped) <= clip / magnitude * (1 + 1e-6) + 1e-15 * clip).all()
    assert (q[x == 0] == 0).all()
    if clip == 0:
        assert not q.any()


def test_rounding_at_random_keeps_the_mean():
    x = np.repeat(np.linspace(-1.2, 1.2, 13), 20_000)
    q = quantise(x, 1.0, 3, np.random.default_rng(0).random(len(x)))
    error = (dequantise(q, 1.0, 3, 1) - np.clip(x, -1, 1)).reshape(13, -1).mean(1)
    assert np.abs(error).max() < 5 * (1 / 3) / 2 / np.sqrt(20_000)


def test_the_same_formula_in_torch_gives_the_same_numbers():
    """What the simulation computes is what a client would send."""
    x, u = torch.randn(1000, generator=torch.Generator().manual_seed(0)), torch.rand(1000, generator=torch.Generator().manual_seed(1))
    clip, magnitude = 1.7, 102
    scaled = x.double().clamp(-clip, clip) / clip * magnitude
    low = scaled.floor()
    expected = (low + (u < scaled - low)).long()
    np.testing.assert_array_equal(quantise(x.numpy(), clip, magnitude, u.numpy()), expected.numpy())


@pytest.mark.parametrize(("bits", "ratio"), [(2, 1.7106), (4, 2.3985), (8, 3.7736), (16, 5.829), (26, 7.750)])
def test_the_clip_is_that_of_the_published_rounding_error(bits, ratio):
    """BatchCrypt's term 2α²(2^b - 2)/(3·2^3b) is Δ²/6 for this magnitude; its optima as re-derived."""
    magnitude = (2 ** (3 * bits) / (4 * (2**bits - 2))) ** 0.5
    assert clip_ratio(magnitude) == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("magnitude", [1, 3, 12, 102, 3276])
def test_no_other_clip_has_a_smaller_error(magnitude):
    def error(alpha):
        return 2 * ((1 + alpha**2) * norm.sf(alpha) - alpha * norm.pdf(alpha)) + (alpha / magnitude) ** 2 / 6

    best = minimize_scalar(error, bounds=(0.1, 8), method="bounded", options={"xatol": 1e-9}).x
    assert clip_ratio(magnitude) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("codec", "decibel"), [(Codec(2048, 200, 5), 36), (Codec(2048, 400, 5), 11), (Codec(3072, 400, 5), 20)])
def test_the_aggregate_has_the_documented_signal_to_noise_ratio(codec, decibel):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.01, 200_000)  # every client sends the same: the clipping errors add up as in the table
    clip = clip_of(x, codec.magnitude)
    q = quantise(x, clip, codec.magnitude, rng.random(len(x)))
    error = np.mean((dequantise(q, clip, codec.magnitude, 1) - x) ** 2)
    assert 10 * np.log10(np.mean(x**2) / error) == pytest.approx(decibel, abs=1.5)


def test_clips_are_found_for_many_updates_at_once_and_never_exceed_the_largest_value():
    x = np.random.default_rng(0).normal(size=(3, 2, 500)) * np.array([1e-200, 1.0, 1e200])[:, None, None]
    clips = clip_of(x, 102)
    assert clips.shape == (3, 2)
    for index in np.ndindex(3, 2):
        assert clips[index] == pytest.approx(float(clip_of(x[index], 102)), rel=1e-12)
        assert 0 < clips[index] <= np.abs(x[index]).max()
    assert clip_of(np.full(9, 2.0), 10**6) == 2.0
    assert clip_of(np.zeros(9), 102) == 0.0
    assert clip_of(np.zeros((2, 0)), 102).tolist() == [0, 0]


def test_a_clip_for_each_row_broadcasts():
    x, u = np.array([[1.0, -2.0], [10.0, 20.0]]), np.zeros((2, 2))
    assert quantise(x, np.array([[2.0], [20.0]]), 10, u).tolist() == [[5, -10], [5, 10]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_must_be_finite(bad):
    """T3."""
    with pytest.raises(SettingError, match="quantise: values must be finite, found 1"):
        quantise([0.0, bad], 1.0, 3, [0.0, 0.0])
    with pytest.raises(SettingError, match="clip_of: values must be finite"):
        clip_of([0.0, bad], 3)


@pytest.mark.parametrize("clip", [-1.0, np.nan, np.inf])
def test_the_clip_must_be_finite_and_not_negative(clip):
    with pytest.raises(SettingError, match="clip: must be finite and at least 0"):
        quantise([0.0], clip, 3, [0.0])


@pytest.mark.parametrize("draws", [[1.0], [-0.1], [0.5, 0.5]])
def test_the_draws_must_fit(draws):
    with pytest.raises(SettingError, match=r"the draws must lie in \[0, 1\)"):
        quantise([0.0], 1.0, 3, draws)


def test_the_magnitude_must_be_positive():
    with pytest.raises(SettingError, match="the magnitude must be above 0"):
        clip_ratio(0)
