"""Inputs that would weaken a promise without a word are refused, wherever a promise is priced."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fedpareto.errors import SettingError, StudyError
from fedpareto.privacy import Privacy, epsilon, guarantee, noise_for, selection_guarantee
from fedpareto.study import load_study

ROUND = {"noise": 1.0, "clipping_norm": 1.0, "cohort": 10, "clients": 100, "rounds": 20, "sampling": "poisson", "view": "release"}

TERMS = [
    ({"view": "all"}, "view: must be one of server, secagg, release, found 'all'"),
    ({"view": None}, "view: must be a text, found None"),
    ({"unit": "records"}, "unit: must be one of client, record, found 'records'. Did you mean 'record'?"),
    ({"adjacency": "replaced"}, "adjacency: must be one of zero_out, replace, found 'replaced'. Did you mean 'replace'?"),
    ({"dropouts": -3}, "dropouts: must be at least 0, found -3"),
    ({"dropouts": 2.5}, "dropouts: must be a whole number, found 2.5"),
    ({"dropouts": True}, "dropouts: must be a whole number, found True"),
    ({"dropouts": None}, "dropouts: must be a whole number, found None"),
    ({"colluders": -1}, "colluders: must be at least 0, found -1"),
    ({"colluders": 10**400}, "colluders: must lie within ±1e300, found a number of 1329 bits"),
    ({"target_delta": math.nan}, "target_delta: must be a finite number, found nan"),
    ({"target_delta": 0}, "target_delta: must be above 0, found 0"),
    ({"target_delta": 0.9}, "target_delta: must be at most 0.5, found 0.9"),
    ({"target_delta": "1e-5"}, "target_delta: must be a number, found '1e-5'"),
    ({"target_epsilon": math.inf}, "target_epsilon: must be a finite number, found inf"),
    ({"target_epsilon": -1.0}, "target_epsilon: must be above 0, found -1.0"),
    ({"private_data": 1}, "private_data: must be true or false, found 1"),
]


@pytest.mark.parametrize(("change", "message"), TERMS)
def test_terms_of_privacy_check_themselves(change, message):
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        Privacy(**change)
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        dataclasses.replace(Privacy(), **change)


def test_numbers_of_numpy_become_pythons():
    made = Privacy("secagg", np.float64(1e-5), np.float32(2), dropouts=np.int64(3), colluders=np.uint8(1), records_per_person=np.int16(2))
    assert made == Privacy("secagg", 1e-5, 2.0, dropouts=3, colluders=1, records_per_person=2)
    assert [type(v) for v in dataclasses.astuple(made)] == [str, float, float, str, str, int, int, bool, int]
    assert Privacy(target_epsilon=4).target_epsilon == 4.0


def test_a_study_file_names_each_fault_of_its_privacy_once(tiny_study):
    text = tiny_study.read_text(encoding="utf-8")
    tiny_study.write_text(text + '[privacy]\nview = "all"\ndropouts = -3\ntarget_delta = nan\n', encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(tiny_study)
    assert [fault.key for fault in caught.value.faults] == ["privacy.view", "privacy.target_delta", "privacy.dropouts"]
    assert caught.value.faults[2].message == "must be at least 0, found -3."


COUNTS = [
    ({"sampling": "fixed", "cohort": 2.5}, "cohort: must be whole numbers, found 2.5"),
    ({"clients": 100.5}, "clients: must be whole numbers, found 100.5"),
    ({"rounds": 1.5}, "rounds: must be whole numbers, found 1.5"),
    ({"rounds": 0}, "rounds: must be finite and at least 1, found 0"),
    ({"rounds": True}, "rounds: must be numbers, found True"),
    ({"cohort": "10"}, "cohort: must be numbers, found '10'"),
    ({"clipping_norm": math.nan}, "clipping_norm: must be finite and above 0, found nan"),
    ({"clipping_norm": -1.0}, "clipping_norm: must be finite and above 0, found -1"),
]


@pytest.mark.parametrize(("change", "message"), COUNTS)
def test_every_accountant_refuses_parts_and_words(change, message):
    asked = ROUND | change
    calibrated = {name: value for name, value in asked.items() if name != "noise"}
    for price in (
        lambda: epsilon(Privacy(), **asked),
        lambda: noise_for(Privacy(), 1.0, **calibrated),
        lambda: guarantee(Privacy(), **asked),
        lambda: selection_guarantee(Privacy(), **asked, trials=2),
    ):
        with pytest.raises(SettingError, match=message):
            price()


def test_noise_that_is_no_number_is_refused():
    for noise in (True, "1", None, math.nan, -1.0):
        with pytest.raises(SettingError, match="noise: must be"):
            epsilon(Privacy(), **ROUND | {"noise": noise})


def test_an_expected_cohort_may_be_a_fraction():
    assert epsilon(Privacy(), **ROUND | {"cohort": 2.5}) > 0


@pytest.mark.parametrize(("change", "message"), [
    ({"trials": math.nan}, "trials: must be a whole number, found nan"),
    ({"trials": True}, "trials: must be a whole number, found True"),
    ({"trials": -2}, "trials: must be at least 1, found -2"),
    ({"repeats": 0}, "repeats: must be at least 1, found 0"),
    ({"trials": 2, "noise": [1.0, 1.0, 1.0]}, "trials: must count each of the 3 candidates, found 2"),
])
def test_a_search_counts_all_its_trainings(change, message):
    with pytest.raises(SettingError, match=message):
        selection_guarantee(Privacy(), **{"trials": 3} | ROUND | change)


def test_a_target_is_a_number():
    asked = {name: value for name, value in ROUND.items() if name != "noise"}
    with pytest.raises(SettingError, match="target_epsilon: must be a number, found True"):
        noise_for(Privacy(), True, **asked)
