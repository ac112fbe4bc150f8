"""The Gaussian mechanism: golden values, another library, closed forms, round trips."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from fedpareto.errors import SettingError
from fedpareto.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_multiplier

multipliers = st.floats(1e-5, 1e4)
deltas = st.floats(1e-12, 0.1)

# golden values measured with dp-accounting 0.6.0 (get_epsilon_gaussian), δ = 1e-5: noise multiplier, rounds, ε
GOLDEN = [(1.0, 1, 4.377178095681137), (0.1, 200, 10602.161437899073), (math.sqrt(0.1), 200, 1189.77669841225),
          (0.05 * math.sqrt(5), 150, 6466.2143792663655), (0.05, 150, 31043.68923661111), (0.5 * math.sqrt(20), 50, 17.856586830107616),
          (0.5, 50, 159.4414862873658), (1.0, 100, 91.81728962466373), (math.sqrt(0.1), 100, 633.9298513356148),
          (math.sqrt(10), 100, 17.856586830107616), (math.sqrt(0.1), 1000, 5425.50984614743), (0.1, 1000, 51347.68357464617),
          (0.5, 1, 9.997256146434315), (0.05, 200, 41205.3007489582), (0.025, 1, 969.6455919324137)]


@pytest.mark.parametrize(("z", "rounds", "epsilon"), GOLDEN)
def test_epsilon_agrees_with_golden_values(z: float, rounds: int, epsilon: float) -> None:
    assert gaussian_epsilon(z / math.sqrt(rounds), 1e-5) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-5, 1e-2])
def test_epsilon_agrees_with_dp_accounting(delta: float) -> None:
    for z in np.geomspace(1e-3, 300, 40):
        theirs = dp_accounting.get_epsilon_gaussian(z, delta)
        assert gaussian_epsilon(z, delta) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 100.0, 1e6])
def test_the_calibrated_multiplier_agrees_with_dp_accounting(epsilon: float) -> None:
    assert gaussian_multiplier(epsilon, 1e-5) == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, 1e-5), rel=1e-8)


@pytest.mark.parametrize("z", [0.3, 1.0, 5.0])
def test_delta_of_epsilon_zero_is_the_total_variation(z: float) -> None:
    assert gaussian_delta(z, 0.0) == pytest.approx(2 * ndtr(0.5 / z) - 1, rel=1e-12)


def test_no_noise_promises_nothing_and_endless_noise_everything() -> None:
    assert gaussian_epsilon([0.0, np.inf, 1e6], 1e-5).tolist() == [np.inf, 0.0, 0.0]
    assert gaussian_delta([0.0, np.inf, 1.0], [1.0, 1.0, np.inf]).tolist() == [1.0, 0.0, 0.0]
    assert gaussian_multiplier(np.inf, 1e-5) == 0


def test_epsilon_is_stable_up_to_billions() -> None:
    assert gaussian_epsilon(1e-5, 1e-5) == pytest.approx(5e9 + 4.2649e5, rel=1e-8)
    assert gaussian_multiplier(1e9, 1e-5) == pytest.approx(2.23628123e-05, rel=1e-7)


@given(multipliers, deltas)
def test_the_calibrated_multiplier_is_the_least_that_holds(z: float, delta: float) -> None:
    epsilon = float(gaussian_epsilon(z, delta))
    if epsilon > 1e-9:
        back = float(gaussian_multiplier(epsilon, delta))
        assert float(gaussian_epsilon(back, delta)) <= epsilon
        assert back == pytest.approx(z, rel=1e-6)


@given(multipliers, st.floats(1.0, 10.0), deltas)
def test_more_noise_never_raises_epsilon(z: float, more: float, delta: float) -> None:
    assert gaussian_epsilon(z * more, delta) <= gaussian_epsilon(z, delta) * (1 + 1e-11)


@given(multipliers, deltas)
def test_epsilon_is_rounded_up(z: float, delta: float) -> None:
    assert gaussian_delta(z, gaussian_epsilon(z, delta)) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: gaussian_epsilon(np.nan, 1e-5), "noise_multiplier must be at least 0, found nan"),
    (lambda: gaussian_epsilon(-1.0, 1e-5), "noise_multiplier must be at least 0"),
    (lambda: gaussian_epsilon(1.0, 0.0), "delta must lie between 0 and 1"),
    (lambda: gaussian_epsilon(1.0, np.nan), "delta must lie between 0 and 1"),
    (lambda: gaussian_delta(1.0, -1.0), "epsilon must be at least 0"),
    (lambda: gaussian_multiplier(np.nan, 1e-5), "epsilon must be at least 0"),
    (lambda: gaussian_multiplier(1.0, 1.0), "delta must lie between 0 and 1"),
])
def test_what_is_not_a_setting_is_refused(call: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()  # type: ignore[operator]
