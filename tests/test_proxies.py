"""The papers' other formulas: golden values computed from their equations, ranges, and refusals."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.errors import SettingError
from fedpareto.privacy import (
    gu24_eq2,
    kang23_eq13_smooth,
    kang23_eq15,
    kang23_eq15_exact,
    xiao25_eq7,
)

largest = sys.float_info.max


@pytest.mark.parametrize(("q", "T", "sigma", "K", "c", "value"), [
    (1.0, 200, 0.1, 10, 1.0, 151.7427129385146), (0.5, 50, 0.5, 40, 1.0, 5.364915065723368), (0.25, 100, 0.02, 40, 0.1,
                                                                                              13.412287664308419)])
def test_gu_eq_2(q, T, sigma, K, c, value):
    assert float(gu24_eq2(sigma, c, q, T, K, 1e-5)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("sigma", "c", "d", "value"), [
    (0.01, 1.0, 269322, 0.9853611616105612), (0.03, 1.0, 269322, 0.8688394308359018), (0.1, 1.0, 269322, 0.0665339569305411),
    (0.1, 2.0, 7850, 0.9375796529849469), (0.05, 1.0, 148394, 0.7334882461890501)])
def test_kang_eq_13_smooth(sigma, c, d, value):
    assert float(kang23_eq13_smooth(sigma, c, d)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("mu", "c2", "value"), [
    (0.001, 8, 0.9841891057921781), (0.1616, 8, 0.8000132663137904), (5.545177, 8, 2.7779973765795773e-08), (-0.01, 8, 1.0),
    (0.6465, 32, 0.7999979533667444), (20, 8, 0.0)])
def test_kang_eq_15(mu, c2, value):
    assert float(kang23_eq15(mu, c2)) == pytest.approx(value, rel=1e-6, abs=1e-12)


def test_kang_eq_15_as_printed_leaves_its_range():
    assert float(kang23_eq15(20, 8, printed=True)) == pytest.approx(-0.354928, abs=1e-6)
    assert math.isnan(kang23_eq15(-0.01, 8, printed=True))


@pytest.mark.parametrize(("norm", "value"), [(0, 1.0), (1.0, 0.6170750774519739), (4.0, 0.04550026389635843), (0.5, 0.802587), (2,
                                                                                                                                0.317311)])
def test_what_kang_eq_15_bounds(norm, value):
    assert float(kang23_eq15_exact(norm)) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize(("T", "v", "sigma", "printed", "value"), [
    (1, 0.4, 6.0, True, 1.9993857967450335), (1, 0.4, 6.0, False, 0.3199017274792054), (100, 0.4, 13.5, True, 8.886159096644594),
    (100, 0.4, 13.5, False, 1.4217854554631353), (100, 1.0, 6.0, True, 7.997543186980135), (100, 1.0, 6.0, False, 7.997543186980135)])
def test_xiao_eq_7(T, v, sigma, printed, value):
    assert float(xiao25_eq7(sigma, T, v, 1e-5, printed)) == pytest.approx(value, rel=1e-6)


positive = st.floats(1e-300, largest)
deltas = st.floats(1e-300, 1 - 1e-9)


@given(st.floats(0, largest), positive, st.floats(1e-9, 1), st.integers(1, 10**6), st.integers(1, 10**9), deltas)
def test_eq_2_and_eq_7_are_never_below_zero(sigma, clip, q, T, K, delta):
    assert float(gu24_eq2(sigma, clip, q, T, K, delta)) >= 0
    assert float(xiao25_eq7(sigma, T, q, delta)) >= 0
    assert float(xiao25_eq7(sigma, T, q, delta, printed=True)) >= 0


@given(st.floats(-largest, largest), positive, st.floats(0, largest), st.integers(1, 10**15))
def test_leakages_of_kang_lie_between_zero_and_one(mu, scale, sigma, d):
    assert 0 <= float(kang23_eq15(mu, scale)) <= 1
    assert 0 <= float(kang23_eq15_exact(abs(mu), scale)) <= 1
    assert 0 <= float(kang23_eq13_smooth(sigma, scale, d)) <= 1


@given(st.floats(1e-6, 1e6), st.floats(1.0001, 100))
def test_more_noise_never_raises_a_proxy(sigma, more):
    assert gu24_eq2(sigma * more, 1, 0.5, 10, 10, 1e-5) < gu24_eq2(sigma, 1, 0.5, 10, 10, 1e-5)
    assert xiao25_eq7(sigma * more, 10, 0.5, 1e-5) < xiao25_eq7(sigma, 10, 0.5, 1e-5)
    assert kang23_eq13_smooth(sigma * more, 1, 100) <= kang23_eq13_smooth(sigma, 1, 100)


def test_without_noise_eq_2_and_eq_7_are_infinite():
    assert np.isinf(gu24_eq2([0.0, 0.0], 1, 0.5, 10, 10, 1e-5)).all()
    assert np.isinf(xiao25_eq7(0.0, 10, 0.5, 1e-5))


@pytest.mark.parametrize(("call", "says"), [
    (lambda: gu24_eq2(math.nan, 1, 0.5, 10, 10, 1e-5), "gu24_eq2: sigma must be finite and at least 0, found nan"),
    (lambda: gu24_eq2(1, math.inf, 0.5, 10, 10, 1e-5), "gu24_eq2: clipping_norm must be finite and above 0, found inf"),
    (lambda: gu24_eq2(1, 1, 0.5, 10, 10, 1.0), "gu24_eq2: delta must be below 1, found 1.0"),
    (lambda: gu24_eq2(1, 1, 0.5, 0, 10, 1e-5), "gu24_eq2: rounds must be finite and at least 1, found 0"),
    (lambda: kang23_eq15(math.nan), "kang23_eq15: withheld must be finite, found nan"),
    (lambda: kang23_eq15(1.0, 0.0), "kang23_eq15: c2 must be finite and above 0, found 0"),
    (lambda: kang23_eq15_exact(-1.0), "kang23_eq15_exact: withheld must be finite and at least 0, found -1"),
    (lambda: xiao25_eq7(1, 10, 0, 1e-5), "xiao25_eq7: sample_ratio must be finite and above 0, found 0"),
    (lambda: xiao25_eq7(1, 10, 0.5, 2), "xiao25_eq7: delta must be below 1, found 2"),
])
def test_what_a_formula_does_not_know_is_refused(call, says):
    with pytest.raises(SettingError, match=says):
        call()
