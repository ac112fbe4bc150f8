"""Named values and the unit cube: nothing is lost on the way there and back."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpareto.errors import SettingError
from fedpareto.space import LARGEST, Choice, Float, Integer, Space

unit = st.floats(0.0, 1.0)
exponents = st.integers(-300, 290)


def decimal(digits: int, exponent: int) -> float:
    return float(f"{digits}e{exponent}")


@st.composite
def floats_with_a_value(draw: st.DrawFn) -> tuple[Float, float]:
    """A range whose ends have at most eight digits, of any size, and such a value within it."""
    log = draw(st.booleans())
    least = 1 if log else -(10**8)
    low, value, high = sorted(draw(st.lists(st.integers(least, 10**8), min_size=3, max_size=3)))
    assume(high - low > 1e-8 * max(abs(low), abs(high)))
    exponent = draw(exponents)
    return Float("x", decimal(low, exponent), decimal(high, exponent), log), decimal(value, exponent)


@st.composite
def any_float(draw: st.DrawFn) -> Float:
    """Any range at all, its ends anywhere among the floats."""
    log = draw(st.booleans())
    least = sys.float_info.min if log else -sys.float_info.max / 2
    low, high = sorted(draw(st.lists(st.floats(least, sys.float_info.max / 2), min_size=2, max_size=2)))
    assume(low < high and (high - low) / max(abs(low), abs(high)) >= 1e-9)
    return Float("x", low, high, log)


@st.composite
def integers_with_a_value(draw: st.DrawFn, largest: int = LARGEST) -> tuple[Integer, int]:
    log = draw(st.booleans())
    low, value, high = sorted(draw(st.lists(st.integers(1 if log else -largest, largest), min_size=3, max_size=3)))
    assume(low < high)
    return Integer("n", low, high, log), value


choices = st.lists(st.one_of(st.integers(), st.text(max_size=5)), min_size=2, max_size=20, unique=True)
variables = st.one_of(floats_with_a_value().map(lambda pair: pair[0]), any_float(),
                      integers_with_a_value().map(lambda pair: pair[0]), choices.map(lambda c: Choice("c", tuple(c))))


def renamed(variable: Float | Integer | Choice, name: str) -> Float | Integer | Choice:
    return type(variable)(**{**vars(variable), "name": name})


@st.composite
def spaces_with_points(draw: st.DrawFn) -> tuple[Space, np.ndarray]:
    space = Space(tuple(renamed(v, f"v{j}") for j, v in enumerate(draw(st.lists(variables, min_size=1, max_size=4)))))
    rows = draw(st.integers(0, 4))
    return space, draw(arrays(np.float64, (rows, len(space)), elements=unit))


@given(floats_with_a_value())
@example((Float("x", 0.01, 0.5, True), 0.1))
@example((Float("x", 1e-300, 1e300, True), 9.99999999999))
@example((Float("x", -1e300, 1e300), -1e300))
@example((Float("x", 1e6, 1e6 + 1), 1e6 + 0.3))
@example((Float("x", 5e-324, 1e-320), 5e-323))
def test_a_float_as_people_write_it_comes_back_exactly(given_: tuple[Float, float]) -> None:
    variable, value = given_
    assert variable.decode(variable.encode(value)) == value


@given(floats_with_a_value())
def test_both_ends_of_a_float_as_people_write_them_are_reached(given_: tuple[Float, float]) -> None:
    variable, _ = given_
    assert variable.decode(0.0) == variable.low
    assert variable.decode(1.0) == variable.high


@given(any_float())
@example(Float("x", 2 / 3, 1.0))
@example(Float("x", 0.0, 1 / 3))
@example(Float("x", 0.001, 0.1234567890123456, log=True))
def test_both_ends_of_any_float_are_reached(variable: Float) -> None:
    assert variable.decode(0.0) == variable.low
    assert variable.decode(1.0) == variable.high


@given(unit)
@example(1.0)
def test_a_log_float_up_to_the_largest_number_can_be_decoded(u: float) -> None:
    variable = Float("x", 1.0753803945023566e-62, sys.float_info.max, log=True)
    assert variable.low <= variable.decode(u) <= variable.high


@given(any_float(), unit)
def test_a_decoded_float_lies_in_its_range_and_comes_back_exactly(variable: Float, u: float) -> None:
    value = variable.decode(u)
    assert variable.low <= value <= variable.high
    assert variable.decode(variable.encode(value)) == value


@given(any_float(), unit, unit)
def test_floats_keep_the_order_of_the_cube(variable: Float, u: float, v: float) -> None:
    first, second = sorted([u, v])
    assert variable.decode(first) <= variable.decode(second)


@given(any_float(), unit)
def test_an_encoded_float_lies_in_the_cube(variable: Float, u: float) -> None:
    assert 0.0 <= variable.encode(variable.decode(u)) <= 1.0


def test_the_middle_of_a_linear_float_is_the_mean_of_its_ends_and_of_a_log_float_their_geometric_mean() -> None:
    assert Float("x", -1.0, 4.0).decode(0.5) == 1.5
    assert Float("x", 0.01, 100.0, log=True).decode(0.5) == 1.0


def test_a_decoded_float_has_no_more_digits_than_people_can_copy() -> None:
    for u in np.linspace(0, 1, 101):
        linear, log = (Float("x", 1.0, 50.0, log).decode(u) for log in (False, True))
        assert float(f"{linear:.11f}") == linear
        assert float(f"{log:.12g}") == log


@given(integers_with_a_value())
@example((Integer("n", 1, LARGEST, True), LARGEST - 1))
@example((Integer("n", -LARGEST, LARGEST), LARGEST - 1))
def test_every_integer_of_a_range_comes_back(given_: tuple[Integer, int]) -> None:
    variable, value = given_
    assert variable.decode(variable.encode(value)) == value
    assert 0.0 < variable.encode(value) < 1.0


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("low", [2**39, LARGEST - 10])
def test_every_integer_of_a_range_of_large_integers_comes_back(low: int, log: bool) -> None:
    variable = Integer("n", low, low + 10, log)
    assert [variable.decode(variable.encode(value)) for value in range(low, low + 11)] == [*range(low, low + 11)]


@given(integers_with_a_value())
def test_both_ends_of_an_integer_are_reached(given_: tuple[Integer, int]) -> None:
    variable, _ = given_
    assert variable.decode(0.0) == variable.low
    assert variable.decode(1.0) == variable.high


@given(st.integers(-1000, 1000), st.integers(1, 50), st.integers(1, 7))
def test_every_value_of_a_linear_integer_has_the_same_share_of_the_cube(low: int, steps: int, each: int) -> None:
    variable = Integer("n", low, low + steps)
    n = variable.size * each
    found = [variable.decode((i + 0.5) / n) for i in range(n)]
    assert found == [low + i // each for i in range(n)]


def test_a_log_integer_gives_each_value_the_share_of_its_interval_on_the_log_scale() -> None:
    variable, n = Integer("n", 1, 20, log=True), 100_000
    found = np.bincount([variable.decode((i + 0.5) / n) for i in range(n)], minlength=21)[1:] / n
    edges = np.log(np.arange(21) + 0.5)
    assert np.allclose(found, np.diff(edges) / (edges[-1] - edges[0]), atol=2 / n)


def test_an_integer_and_a_choice_know_their_number_of_values_and_a_float_has_none() -> None:
    assert Integer("n", -2, 2).size == 5
    assert Choice("c", ("a", "b", "c")).size == 3
    assert Float("x", 0.0, 1.0).size is None


@given(choices)
def test_every_choice_comes_back(values: list[object]) -> None:
    variable = Choice("c", tuple(values))
    assert [variable.decode(variable.encode(value)) for value in values] == values


def test_a_choice_stands_in_the_middle_of_its_share() -> None:
    assert [Choice("c", ("a", "b")).encode(value) for value in ("a", "b")] == [0.25, 0.75]


@given(st.integers(2, 40), st.integers(1, 7))
def test_every_choice_has_the_same_share_of_the_cube(count: int, each: int) -> None:
    variable = Choice("c", tuple(range(count)))
    n = count * each
    assert [variable.decode((i + 0.5) / n) for i in range(n)] == [i // each for i in range(n)]
    assert (variable.decode(0.0), variable.decode(1.0)) == (0, count - 1)


@given(spaces_with_points())
def test_a_snapped_point_stands_for_the_same_settings_and_stays_where_it_is(given_: tuple[Space, np.ndarray]) -> None:
    space, x = given_
    snapped = space.snap(x)
    assert snapped.shape == x.shape
    assert space.decode(snapped) == space.decode(x)
    assert (space.snap(snapped) == snapped).all()


@given(spaces_with_points())
def test_settings_come_back_from_the_cube_in_their_order(given_: tuple[Space, np.ndarray]) -> None:
    space, x = given_
    values = space.decode(x)
    assert list(values) == list(space.names)
    assert space.decode(space.encode(values, len(x))) == values


def test_a_point_outside_the_cube_is_snapped_to_its_side() -> None:
    space = Space((Float("x", 1.0, 3.0), Integer("n", 1, 4)))
    assert space.decode(space.snap(np.array([[-0.5, 7.0], [math.inf, -math.inf]]))) == {"x": [1.0, 3.0], "n": [4, 1]}


def test_a_space_has_a_length_and_names() -> None:
    space = Space((Float("x", 1.0, 3.0), Choice("c", ("a", "b"))))
    assert (len(space), space.names) == (2, ("x", "c"))
    assert len(Space(())) == 0


REFUSED = {
    "nan end": (lambda: Float("x", math.nan, 1.0), "x: both ends of a range must be finite, found [nan, 1.0]."),
    "infinite end": (lambda: Float("x", 0.0, math.inf), "x: both ends of a range must be finite, found [0.0, inf]."),
    "empty float": (lambda: Float("x", 1.0, 1.0), "x: a range must have low < high, found [1.0, 1.0]."),
    "reversed float": (lambda: Float("x", 2.0, 1.0), "x: a range must have low < high, found [2.0, 1.0]."),
    "empty integer": (lambda: Integer("n", 3, 3), "n: a range must have low < high, found [3, 3]."),
    "reversed integer": (lambda: Integer("n", 3, 2), "n: a range must have low < high, found [3, 2]."),
    "too wide": (lambda: Float("x", -1e308, 1e308),
                 "x: a range must be narrower than the largest number, found [-1e+308, 1e+308]."),
    "too narrow": (lambda: Float("x", 1.0, 1.0 + 1e-12),
                   "x: a range must be wider than a billionth of its ends, found [1.0, 1.000000000001]."),
    "too large": (lambda: Integer("n", 0, 10**12 + 1), "n: a range of whole numbers must lie within ±1e+12, found larger ones."),
    "too far below": (lambda: Integer("n", -(10**12) - 1, 0), "n: a range of whole numbers must lie within ±1e+12, found larger ones."),
    "float below": (lambda: Float("x", 1.0, 2.0).encode(0.5), "x: must lie in [1.0, 2.0], found 0.5."),
    "float above": (lambda: Float("x", 1.0, 2.0, True).encode(2.5), "x: must lie in [1.0, 2.0], found 2.5."),
    "float nan": (lambda: Float("x", 1.0, 2.0).encode(math.nan), "x: must lie in [1.0, 2.0], found nan."),
    "integer below": (lambda: Integer("n", 1, 2).encode(0), "n: must lie in [1, 2], found 0."),
    "integer above": (lambda: Integer("n", 1, 2, True).encode(3), "n: must lie in [1, 2], found 3."),
    "no choice": (lambda: Choice("c", ()), "c: a choice must list at least two values, found []."),
    "one choice": (lambda: Choice("c", ("a",)), "c: a choice must list at least two values, found ['a']."),
    "equal choices": (lambda: Choice("c", (1, 2, 1)), "c: choices must differ, found [1, 2, 1]."),
    "foreign choice": (lambda: Choice("c", ("a", "b")).encode("z"), "c: must be one of ['a', 'b'], found 'z'."),
    "equal names": (lambda: Space((Float("x", 0.0, 1.0), Integer("x", 0, 1))),
                    "space: variable names must differ, found ['x', 'x']."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_searched_is_refused_in_words(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(SettingError) as refused:
        make()
    assert str(refused.value) == message


@pytest.mark.parametrize("low", [0.0, -1.0, -0.0])
def test_a_log_range_that_touches_zero_is_refused(low: float) -> None:
    with pytest.raises(SettingError) as refused:
        Float("x", low, 1.0, log=True)
    assert str(refused.value) == f"x: a log range must have low > 0, found low = {low}."
    with pytest.raises(SettingError) as refused:
        Integer("n", int(low), 5, log=True)
    assert str(refused.value) == f"n: a log range must have low > 0, found low = {int(low)}."


@pytest.mark.parametrize("kind", [Integer, Float])
@pytest.mark.parametrize(("low", "high"), [(0, 10**400), (-(10**400), 0), (1, 16**5000)], ids=["high", "low", "unprintable"])
def test_an_end_too_large_for_a_float_is_refused(kind: type[Float] | type[Integer], low: int, high: int) -> None:
    with pytest.raises(SettingError, match="x: "):
        kind("x", low, high)


@pytest.mark.parametrize("log", [False, True])
def test_only_integers_must_lie_within_what_a_log_scale_tells_apart(log: bool) -> None:
    assert Integer("n", 1, LARGEST, log).size == LARGEST
    with pytest.raises(SettingError) as refused:
        Integer("n", 1, LARGEST + 1, log)
    assert str(refused.value) == "n: a range of whole numbers must lie within ±1e+12, found larger ones."
    for high in (LARGEST + 1, 10**18, 1e300):  # also where its ends are written as whole numbers
        variable = Float("x", 1, high, log)
        assert (variable.decode(0.0), variable.decode(1.0)) == (1, high)


def test_choices_that_are_equal_but_written_differently_are_refused() -> None:
    with pytest.raises(SettingError) as refused:
        Choice("c", (1, True))
    assert str(refused.value) == "c: choices must differ, found [1, True]."
