"""Settings read from a table: numbers are fixed, ranges searched, and every fault is told at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.errors import Fault, SettingError
from fedpareto.settings import Real, Rule, Whole, fixed, kind_of, largest, searched, setting
from fedpareto.space import Choice, Float, Integer
from fedpareto.study.table import plain, read


@dataclass(frozen=True)
class Oven:
    """One field of every kind."""

    heat: Real = setting(help="degrees", above=0, at_most=300)
    minutes: Whole = setting(10, help="how long", at_least=1, at_most=600)
    mode: str = setting("fan", help="what heats", options=("fan", "grill", "steam"))
    light: bool = setting(True, help="on or off")
    shelves: tuple[int, ...] = setting((1, 2), help="which are used", at_least=0, at_most=5)
    weight: float | None = setting(None, help="of the dish")
    seed: int = setting(0, help="fixed for a study", at_least=0, search=False)


@dataclass(frozen=True)
class Bare:
    """A user's own dataclass, with nothing but annotations."""

    size: float
    count: int = 1


@dataclass(frozen=True)
class Picky:
    """Two fields that must agree."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SettingError(f"low must not exceed high, found {self.low} and {self.high}.")


@dataclass(frozen=True)
class Foreign:
    """A field of a kind that no study file can hold."""

    what: complex = 0j


def faults_of(cls: type, table: dict[str, Any], where: str = "oven") -> list[Fault]:
    faults: list[Fault] = []
    assert read(cls, table, where, faults) is None
    return faults


def fault_of(table: dict[str, Any]) -> tuple[str, str]:
    """Return the key and message of the one fault of an oven with this table."""
    (fault,) = faults_of(Oven, {"heat": 200.0} | table)
    return fault.key, fault.message


def oven(**table: Any) -> Oven:
    faults: list[Fault] = []
    made = read(Oven, {"heat": 200.0} | table, "oven", faults)
    assert faults == []
    assert made is not None
    return made


def test_numbers_texts_and_lists_are_fixed_as_they_stand() -> None:
    made = oven(heat=180.5, minutes=20, mode="grill", light=False, shelves=[3, 0], weight=1.5, seed=7)
    assert made == Oven(180.5, 20, "grill", False, (3, 0), 1.5, 7)
    assert searched(made) == ()


def test_what_is_left_out_takes_its_default() -> None:
    assert oven() == Oven(200.0, 10, "fan", True, (1, 2), None, 0)


def test_a_whole_number_will_do_for_a_float_and_becomes_one() -> None:
    made = oven(heat=180, weight=2)
    assert (made.heat, made.weight) == (180.0, 2.0)
    assert {type(made.heat), type(made.weight)} == {float}


def test_a_plain_dataclass_of_the_users_own_works_as_it_is() -> None:
    assert read(Bare, {"size": [-1, 1], "count": {"choices": [2, 3]}}, "", []) == Bare(
        Float("size", -1.0, 1.0), Choice("count", (2, 3)))  # type: ignore[arg-type]


def test_a_range_is_searched() -> None:
    made = oven(heat=[100, 200.5], minutes=[1, 9], mode={"choices": ["fan", "steam"]}, weight=[0, 1])
    assert made.heat == Float("heat", 100.0, 200.5)
    assert made.minutes == Integer("minutes", 1, 9)
    assert made.mode == Choice("mode", ("fan", "steam"))
    assert searched(made) == (made.heat, made.minutes, made.mode, made.weight)


def test_a_range_written_as_a_table_may_be_on_a_log_scale() -> None:
    assert oven(heat={"low": 1, "high": 300, "log": True}).heat == Float("heat", 1.0, 300.0, log=True)
    assert oven(heat={"low": 1, "high": 300}).heat == Float("heat", 1.0, 300.0)
    assert oven(minutes={"low": 1, "high": 600, "log": True}).minutes == Integer("minutes", 1, 600, log=True)


def test_a_range_inside_a_list_is_searched_under_the_name_of_the_list_and_its_place() -> None:
    made = oven(shelves=[[0, 3], 2, {"choices": [1, 4]}, {"low": 1, "high": 5, "log": True}])
    assert made.shelves == (Integer("shelves_1", 0, 3), 2, Choice("shelves_3", (1, 4)), Integer("shelves_4", 1, 5, log=True))
    assert searched(made) == (made.shelves[0], *made.shelves[2:])


def test_fixing_the_ranges_chooses_a_number_for_each_and_leaves_the_rest() -> None:
    made = oven(heat=[100, 200.5], minutes=30, shelves=[[0, 3], 2])
    assert fixed(made, largest) == oven(heat=200.5, minutes=30, shelves=[3, 2])


def test_choices_of_a_float_become_floats() -> None:
    choice = oven(heat={"choices": [100, 200.5]}).heat
    assert choice == Choice("heat", (100.0, 200.5))
    assert isinstance(choice, Choice)
    assert {type(value) for value in choice.choices} == {float}


WAYS = "[low, high], {low = ..., high = ..., log = true} or {choices = [...]}"

WRONG = {
    "text for a number": ({"heat": "hot"}, "heat", "must be a number, found 'hot'."),
    "float for a whole number": ({"minutes": 2.0}, "minutes", "must be a whole number, found 2.0."),
    "number for a text": ({"mode": 3}, "mode", "must be a text, found 3."),
    "number for a switch": ({"light": 1}, "light", "must be true or false, found 1."),
    "text for a switch": ({"light": "yes"}, "light", "must be true or false, found 'yes'."),
    "number for a list": ({"shelves": 3}, "shelves", "must be a list of whole numbers, found 3."),
    "range for a list": ({"shelves": {"low": 1, "high": 2}}, "shelves",
                         "must be a list of whole numbers, found {'low': 1, 'high': 2}."),
    "float in a list": ({"shelves": [1, 2.5]}, "shelves", "shelves_2: must be a whole number, found 2.5."),
    "list in a list": ({"shelves": [[1]]}, "shelves",
                       f"shelves_1: must be a whole number or a range written as {WAYS}, found [1]."),
    "true for a float": ({"heat": True}, "heat", "must be a number, found True."),
    "true for an optional float": ({"weight": True}, "weight", "must be a number, found True."),
    "false for a whole number": ({"minutes": False}, "minutes", "must be a whole number, found False."),
    "true in a list": ({"shelves": [True]}, "shelves", "shelves_1: must be a whole number, found True."),
    "true in a range": ({"heat": [True, 10]}, "heat", "must be a number, found True."),
    "true among choices": ({"minutes": {"choices": [True, 3]}}, "minutes", "must be a whole number, found True."),
    "text in a range": ({"heat": [1, "2"]}, "heat", "must be a number, found '2'."),
    "float in a whole range": ({"minutes": [1, 2.5]}, "minutes", "must be a whole number, found 2.5."),
    "unknown option": ({"mode": "gril"}, "mode", "must be one of fan, grill, steam, found 'gril'. Did you mean 'grill'?"),
    "far option": ({"mode": "zzz"}, "mode", "must be one of fan, grill, steam, found 'zzz'. Known: fan, grill, steam."),
    "unknown option among choices": ({"mode": {"choices": ["fan", "stea"]}}, "mode",
                                     "must be one of fan, grill, steam, found 'stea'. Did you mean 'steam'?"),
    "too little": ({"minutes": 0}, "minutes", "must be at least 1, found 0."),
    "not above": ({"heat": 0}, "heat", "must be above 0, found 0."),
    "too much": ({"heat": 300.5}, "heat", "must be at most 300, found 300.5."),
    "too much in a list": ({"shelves": [0, 6]}, "shelves", "shelves_2: must be at most 5, found 6."),
    "too much in a range in a list": ({"shelves": [0, [1, 6]]}, "shelves", "shelves_2: must be at most 5, found 6."),
    "reversed range in a list": ({"shelves": [[3, 1], 2]}, "shelves", "shelves_1: a range must have low < high, found [3, 1]."),
    "one choice in a list": ({"shelves": [1, {"choices": [2]}]}, "shelves",
                             "shelves_2: a choice must list at least two values, found [2]."),
    "too little at the low end": ({"minutes": [0, 5]}, "minutes", "must be at least 1, found 0."),
    "too little at the high end": ({"minutes": {"low": 5, "high": -5}}, "minutes", "must be at least 1, found -5."),
    "too much at the low end": ({"heat": {"low": 301, "high": 302}}, "heat", "must be at most 300, found 301."),
    "too much at the high end": ({"heat": [1, 301]}, "heat", "must be at most 300, found 301."),
    "too much among choices": ({"heat": {"choices": [1, 2, 999]}}, "heat", "must be at most 300, found 999."),
    "nan": ({"heat": math.nan}, "heat", "must be a finite number, found nan."),
    "inf": ({"weight": math.inf}, "weight", "must be a finite number, found inf."),
    "minus inf": ({"weight": -math.inf}, "weight", "must be a finite number, found -inf."),
    "nan in a range": ({"weight": [0.0, math.nan]}, "weight", "must be a finite number, found nan."),
    "inf in a range": ({"weight": [-math.inf, 0.0]}, "weight", "must be a finite number, found -inf."),
    "nan among choices": ({"weight": {"choices": [1, math.nan]}}, "weight", "must be a finite number, found nan."),
    "huge": ({"weight": 10**400}, "weight", "must lie within ±1e300, found a number of 1329 bits."),
    "huge and negative": ({"weight": -(10**400)}, "weight", "must lie within ±1e300, found a number of 1329 bits."),
    "huge in a range": ({"weight": [0, 10**400]}, "weight", "must lie within ±1e300, found a number of 1329 bits."),
    "huge whole number": ({"minutes": 10**30}, "minutes", f"must be at most 600, found {10**30}."),
    "empty range": ({"heat": [5, 5]}, "heat", "a range must have low < high, found [5.0, 5.0]."),
    "reversed range": ({"minutes": [9, 2]}, "minutes", "a range must have low < high, found [9, 2]."),
    "log range from zero": ({"weight": {"low": 0, "high": 1, "log": True}}, "weight",
                            "a log range must have low > 0, found low = 0.0."),
    "one choice": ({"heat": {"choices": [5]}}, "heat", "a choice must list at least two values, found [5.0]."),
    "equal choices": ({"heat": {"choices": [5, 5.0]}}, "heat", "choices must differ, found [5.0, 5.0]."),
    "range for a switch": ({"light": [False, True]}, "light",
                           "must be true or false, found [False, True]. This setting cannot be searched."),
    "range for a fixed setting": ({"seed": [1, 2]}, "seed",
                                  "must be a whole number, found [1, 2]. This setting cannot be searched."),
    "choices for a fixed setting": ({"seed": {"choices": [1, 2]}}, "seed",
                                    "must be a whole number, found {'choices': [1, 2]}. This setting cannot be searched."),
    "three ends": ({"heat": [1, 2, 3]}, "heat", f"must be a number or a range written as {WAYS}, found [1, 2, 3]."),
    "one end": ({"heat": [1]}, "heat", f"must be a number or a range written as {WAYS}, found [1]."),
    "no end": ({"minutes": []}, "minutes", f"must be a whole number or a range written as {WAYS}, found []."),
    "low alone": ({"heat": {"low": 1}}, "heat", f"must be a number or a range written as {WAYS}, found {{'low': 1}}."),
    "a step": ({"heat": {"low": 1, "high": 2, "step": 1}}, "heat",
               f"must be a number or a range written as {WAYS}, found {{'low': 1, 'high': 2, 'step': 1}}."),
    "log in words": ({"heat": {"low": 1, "high": 2, "log": "yes"}}, "heat",
                     f"must be a number or a range written as {WAYS}, found {{'low': 1, 'high': 2, 'log': 'yes'}}."),
    "choices not listed": ({"heat": {"choices": 5}}, "heat",
                           f"must be a number or a range written as {WAYS}, found {{'choices': 5}}."),
    "choices and an end": ({"heat": {"choices": [5, 6], "low": 5}}, "heat",
                           f"must be a number or a range written as {WAYS}, found {{'choices': [5, 6], 'low': 5}}."),
    "a range of texts": ({"mode": ["fan", "grill"]}, "mode",
                         "must be a text or a range written as {choices = [...]}, found ['fan', 'grill']."),
    "near key": ({"minuts": 5}, "minuts", "there is no such key. Did you mean 'minutes'?"),
    "far key": ({"zzz": 5}, "zzz", "there is no such key. Known: heat, light, minutes, mode, seed, shelves, weight."),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_with_its_key_and_what_was_found(name: str) -> None:
    table, key, message = WRONG[name]
    assert fault_of(table) == (f"oven.{key}", message)


def test_bounds_themselves_are_allowed_except_where_the_rule_says_above() -> None:
    made = oven(heat=300, minutes=1, shelves=[0, 5])
    assert (made.heat, made.minutes, made.shelves) == (300.0, 1, (0, 5))
    assert oven(heat=5e-324).heat == 5e-324


@pytest.mark.parametrize("count", [10**300, -(10**300)])
def test_a_whole_number_without_a_bound_may_have_three_hundred_zeros(count: int) -> None:
    made = read(Bare, {"size": 1.0, "count": count}, "", [])
    assert made is not None
    assert made.count == count
    assert faults_of(Bare, {"size": 1.0, "count": 10 * count}) == [
        Fault("oven.count", "must lie within ±1e300, found a number of 1000 bits.")]


@pytest.mark.parametrize("found", [10**400, -(10**400), [1, 10**400], {"choices": [1, 10**400]}],
                         ids=["fixed", "negative", "range", "choices"])
def test_a_number_too_huge_for_a_float_is_refused_wherever_it_stands(found: object) -> None:
    (fault,) = faults_of(Bare, {"size": found})
    assert fault.key == "oven.size"
    assert fault.message == "must lie within ±1e300, found a number of 1329 bits."


@pytest.mark.parametrize(("end", "message"), [
    (10**400, "must lie within ±1e300, found a number of 1329 bits."),
    (10**12 + 1, "a range of whole numbers must lie within ±1e+12, found larger ones.")])
def test_a_range_of_whole_numbers_with_a_huge_end_is_refused(end: int, message: str) -> None:
    assert faults_of(Bare, {"size": 1.0, "count": [1, end]}) == [Fault("oven.count", message)]
    assert faults_of(Bare, {"size": 1.0, "count": [-end, 1]}) == [Fault("oven.count", message)]


@pytest.mark.parametrize("end", [10**12 + 1, 10**18, 10**300])
def test_a_range_of_floats_may_have_ends_that_no_range_of_whole_numbers_may_have(end: int) -> None:
    made = read(Bare, {"size": [-end, end]}, "", [])
    assert made is not None
    assert made.size == Float("size", float(-end), float(end))  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("key", ["weight", "minutes"])
def test_a_number_with_more_digits_than_python_will_print_is_refused(key: str) -> None:
    found = fault_of({key: 16**5000})  # 0x1000... in a study file
    assert found == (f"oven.{key}", "must lie within ±1e300, found a number of 20001 bits.")


def test_a_setting_without_default_must_be_given() -> None:
    assert faults_of(Oven, {}) == [Fault("oven.heat", "must be given: degrees.")]
    assert faults_of(Bare, {}) == [Fault("oven.size", "must be given: a number.")]


def test_all_faults_are_told_at_once() -> None:
    table = {"heat": "hot", "minutes": [0, 5], "mode": "gril", "light": 1, "shelves": 3, "weight": math.nan, "sed": 1}
    assert {fault.key for fault in faults_of(Oven, table)} == {f"oven.{key}" for key in table}


def test_faults_are_added_to_those_already_found() -> None:
    faults = [Fault("data.name", "must be given.")]
    assert read(Oven, {}, "oven", faults) is None
    assert [fault.key for fault in faults] == ["data.name", "oven.heat"]
    assert read(Oven, {"heat": 1}, "oven", faults) is not None
    assert len(faults) == 2


def test_a_key_at_the_top_of_a_file_stands_alone() -> None:
    assert [fault.key for fault in faults_of(Bare, {"size": "x", "cuont": 1}, "")] == ["cuont", "size"]


@pytest.mark.parametrize(("where", "key"), [("range", "range"), ("", "study")])
def test_what_a_dataclass_refuses_itself_is_a_fault_of_its_table(where: str, key: str) -> None:
    assert faults_of(Picky, {"low": 2, "high": 1}, where) == [Fault(key, "low must not exceed high, found 2.0 and 1.0.")]


def test_a_dataclass_is_not_built_from_faulty_values() -> None:
    assert [fault.key for fault in faults_of(Picky, {"low": 2, "high": "x"}, "range")] == ["range.high"]


def test_a_field_of_a_kind_no_file_can_hold_is_refused() -> None:
    message = "settings: a field must be float, int, str, bool or tuple[int, ...], found <class 'complex'>."
    assert [fault.message for fault in faults_of(Foreign, {"what": 1}, "")] == [message]
    with pytest.raises(SettingError) as refused:
        kind_of(complex)
    assert str(refused.value) == message


@pytest.mark.parametrize(("hint", "kind"), [
    (float, float), (int, int), (str, str), (bool, bool), (tuple[int, ...], tuple), (Real, float), (Whole, int),
    (float | None, float), (Optional[int], int)])  # noqa: UP045
def test_an_annotation_asks_for_one_kind(hint: Any, kind: type) -> None:
    assert kind_of(hint) is kind


@given(st.floats(), st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_rule_holds_exactly_between_its_bounds(value: float, least: float, most: float) -> None:
    assert (Rule(at_least=least, at_most=most).broken(value) is None) == (math.isfinite(value) and least <= value <= most)
    assert (Rule(above=least).broken(value) is None) == (math.isfinite(value) and value > least)


numbers = st.one_of(st.floats(0.5, 300), st.integers(1, 300))
heats = st.one_of(numbers, st.tuples(st.integers(1, 100), st.integers(101, 300)).map(list),
                  st.builds(lambda low, log: {"low": low, "high": 300.0, "log": log}, st.floats(0.5, 299), st.booleans()),
                  st.lists(st.integers(1, 300), min_size=2, max_size=5, unique=True).map(lambda c: {"choices": c}))
shelf = st.one_of(st.integers(0, 5), st.integers(1, 5).map(lambda high: [0, high]))
ovens = st.fixed_dictionaries({"heat": heats}, optional={
    "minutes": st.integers(1, 600), "mode": st.sampled_from(["fan", "grill", "steam"]), "light": st.booleans(),
    "shelves": st.lists(shelf, max_size=3), "weight": st.floats(-10, 10), "seed": st.integers(0, 2**70)})


@given(ovens)
def test_settings_written_plainly_are_read_back_as_they_were(table: dict[str, Any]) -> None:
    made = oven(**table)
    assert oven(**plain(made)) == made


def test_plain_gives_tables_lists_numbers_and_texts_and_leaves_out_what_is_not_set() -> None:
    made = oven(heat={"low": 1, "high": 2, "log": True}, minutes=[1, 2], mode={"choices": ["fan", "grill"]})
    assert plain(made) == {"heat": {"low": 1.0, "high": 2.0, "log": True}, "minutes": {"low": 1, "high": 2, "log": False},
                           "mode": {"choices": ["fan", "grill"]}, "light": True, "shelves": [1, 2], "seed": 0}
    assert plain((made, [Bare(1.0)])) == [plain(made), [{"size": 1.0, "count": 1}]]
