"""What the papers leave open in their formulas may be set: C, C₁, and what Xiao's noise multiplier counts on."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto import (
    Chain,
    Data,
    Federation,
    Float,
    Lr,
    Objective,
    Privacy,
    Quantization,
    Randomization,
    Training,
    load_study,
)
from fedpareto.errors import SettingError
from fedpareto.privacy import gu24_eq2, kang23_eq13, xiao25_eq7
from tests.conftest import STUDY

GOALS = (Objective("gu24_eq2"), Objective("kang23_eq13"), Objective("kang23_eq13_smooth"))
TRAINING = Training(Float("learning_rate", 0.05, 0.2), rounds=2, local_steps=1, sample_ratio=0.5)


def known(mechanism, goals=GOALS):
    found = Federation(Data("digits", 8), Lr(), TRAINING, mechanism, goals).known({"learning_rate": [0.1]}, [o.measure for o in goals])
    return {name: float(column[0]) for name, column in found.items()}


@pytest.mark.parametrize("chained", [False, True])
def test_c_and_c1_scale_their_formulas_and_nothing_else(chained):
    def made(**constants):
        link = Randomization(0.02, 1.0, **constants)
        return known(Chain((link, Quantization(8))) if chained else link)

    usual, changed = made(), made(leakage_c=3.0, leakage_c1=5.0)
    assert changed["gu24_eq2"] == pytest.approx(3 * usual["gu24_eq2"])
    assert usual["gu24_eq2"] == pytest.approx(float(gu24_eq2(0.02, 1.0, 0.5, 2, 8, Privacy().delta(8))))
    assert changed["kang23_eq13"] == pytest.approx(float(kang23_eq13(0.02, 1.0, 650, 5.0)))
    assert changed["kang23_eq13"] < usual["kang23_eq13"] == pytest.approx(float(kang23_eq13(0.02, 1.0, 650)))
    assert changed["kang23_eq13_smooth"] == usual["kang23_eq13_smooth"]


def test_studies_that_name_neither_are_what_they_were(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    usual = load_study(path).identity["mechanism"]
    assert not {"leakage_c", "leakage_c1", "noise_on"} & {*usual}
    path.write_text(STUDY.replace("clipping_norm = [0.5, 4.0]", "clipping_norm = [0.5, 4.0]\nleakage_c1 = 2"))
    assert load_study(path).identity["mechanism"] == usual | {"leakage_c1": 2.0}


def test_the_printed_sigma_of_xiao_is_noise_on_the_average_and_counts_as_such():
    goals = (Objective("xiao25_eq7"), Objective("xiao25_eq7_printed"), Objective("epsilon_secagg"))
    on_the_sum, printed = (known(Randomization(None, 1.0, 6.0, noise_on=on), goals) for on in ("sum", "average"))
    assert printed["xiao25_eq7"] == on_the_sum["xiao25_eq7"]  # the same σ in Eq. 7
    assert printed["xiao25_eq7_printed"] == on_the_sum["xiao25_eq7_printed"]
    cohort = 4
    same_noise = known(Randomization(None, 1.0, 6.0 * cohort), goals)
    assert printed["epsilon_secagg"] == same_noise["epsilon_secagg"] < on_the_sum["epsilon_secagg"]  # but a true ε knows the noise
    assert same_noise["xiao25_eq7"] == pytest.approx(printed["xiao25_eq7"] / cohort)
    assert printed["xiao25_eq7"] == pytest.approx(float(xiao25_eq7(6.0, 2, 0.5, Privacy().delta(8))))


def test_noise_on_the_average_is_a_cohort_times_as_large():
    values = {"clipping_norm": np.array([2.0]), "noise_multiplier": np.array([3.0]), "cohort": np.array([16.0])}
    sigma, _ = Randomization(None, 2.0, 3.0, noise_on="average").gaussian(values)
    on_the_average = sigma * np.sqrt(16) / 16  # of the mean of sixteen uploads, each with noise of its own
    assert on_the_average == pytest.approx(3.0 * 2.0)


def test_each_client_s_own_sigma_is_on_nothing_else():
    with pytest.raises(SettingError, match="noise_on: must be sum where sigma is given, found average: sigma is each client's own noise"):
        Randomization(0.1, 1.0, noise_on="average")
