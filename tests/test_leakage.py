"""Leakage formulas: golden values, where they saturate, and that they stay within [0, 1]."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedpareto.errors import SettingError
from fedpareto.privacy import kang23_eq13

# golden values computed from Kang 2023, Eq. 13: sigma, clipping norm, parameters, leakage
GOLDEN = [
    (0.01, 1.0, 269322, 0.9481037573614428),
    (0.03, 1.0, 269322, 0.5329338162529854),
    (0.1, 1.0, 269322, 0.0),
    (0.1, 2.0, 7850, 0.778499435666633),
    (0.05, 1.0, 148394, 0.03695145501381902),
]

largest = sys.float_info.max
sigmas = st.floats(0.0, largest)
clips = st.floats(0.0, largest, exclude_min=True)


@pytest.mark.parametrize(("sigma", "clip", "parameters", "leakage"), GOLDEN)
def test_leakage_agrees_with_golden_values(sigma: float, clip: float, parameters: int, leakage: float) -> None:
    assert kang23_eq13(sigma, clip, parameters) == pytest.approx(leakage, rel=1e-6, abs=1e-12)


def test_leakage_of_many_settings_is_the_leakage_of_each() -> None:
    sigma, clip = np.array([row[0] for row in GOLDEN]), np.array([row[1] for row in GOLDEN])
    together = kang23_eq13(sigma, clip, 7850)
    assert together.shape == (5,)
    assert together.tolist() == [float(kang23_eq13(s, c, 7850)) for s, c in zip(sigma, clip, strict=True)]


def test_without_noise_everything_leaks() -> None:
    assert kang23_eq13([0.0, 0.0], [1e-9, 1e9], 100).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("parameters", [1, 7850, 269322])
def test_leakage_reaches_zero_where_the_noise_equals_the_clipped_signal_and_stays_there(parameters: int) -> None:
    edge = parameters ** -0.25  # σ²/c² √d = 1
    assert float(kang23_eq13(edge * 0.999, 1.0, parameters)) > 0
    assert kang23_eq13([edge * 1.001, 10.0, 1e200, largest], 1.0, parameters).tolist() == [0.0] * 4


@given(sigmas, clips, st.integers(1, 10**15), st.floats(1e-9, 1e9))
@example(largest, 5e-324, 1, 1.0)
@example(5e-324, largest, 10**15, 1e-9)
def test_leakage_lies_between_zero_and_one(sigma: float, clip: float, parameters: int, c1: float) -> None:
    assert 0.0 <= float(kang23_eq13(sigma, clip, parameters, c1)) <= 1.0


@pytest.mark.parametrize("c1", [-1.0, 0.0, math.nan, math.inf])
def test_a_constant_that_makes_no_leakage_of_the_formula_is_refused_or_stays_within_its_range(c1: float) -> None:
    try:
        found = kang23_eq13([0.0, 0.1, 1e300], [1.0, 1.0, 1e-300], 100, c1)
    except SettingError:
        return
    assert ((found >= 0.0) & (found <= 1.0)).all()


@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.floats(1e-3, 1e3), st.integers(1, 10**8))
def test_more_noise_never_leaks_more_and_a_wider_clip_never_leaks_less(a: float, b: float, clip: float, d: int) -> None:
    less, more = sorted([a, b])
    assert kang23_eq13(less, clip, d) >= kang23_eq13(more, clip, d)
    assert kang23_eq13(more, 2 * clip, d) >= kang23_eq13(more, clip, d)


def test_the_constant_scales_what_is_protected() -> None:
    assert 1 - kang23_eq13(0.1, 1.0, 100, c1=3.0) == pytest.approx(3 * (1 - kang23_eq13(0.1, 1.0, 100)))


@pytest.mark.parametrize(("sigma", "clip", "parameters", "message"), [
    (-0.1, 1.0, 10, "kang23_eq13: sigma must be finite and at least 0, found -0.1."),
    (math.nan, 1.0, 10, "kang23_eq13: sigma must be finite and at least 0, found nan."),
    (math.inf, 1.0, 10, "kang23_eq13: sigma must be finite and at least 0, found inf."),
    ([0.1, -1.0], 1.0, 10, "kang23_eq13: sigma must be finite and at least 0, found [ 0.1 -1. ]."),
    (0.1, 0.0, 10, "kang23_eq13: clipping_norm must be finite and above 0, found 0.0."),
    (0.1, -1.0, 10, "kang23_eq13: clipping_norm must be finite and above 0, found -1.0."),
    (0.1, math.nan, 10, "kang23_eq13: clipping_norm must be finite and above 0, found nan."),
    (0.1, math.inf, 10, "kang23_eq13: clipping_norm must be finite and above 0, found inf."),
    (0.1, 1.0, 0, "kang23_eq13: parameters must be finite and at least 1, found 0.0."),
    (0.1, 1.0, -3, "kang23_eq13: parameters must be finite and at least 1, found -3.0."),
])
def test_settings_the_formula_does_not_know_are_refused(sigma: object, clip: float, parameters: int, message: str) -> None:
    with pytest.raises(SettingError) as refused:
        kang23_eq13(sigma, clip, parameters)  # type: ignore[arg-type]
    assert str(refused.value) == message
