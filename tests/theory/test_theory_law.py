"""The closed form against an exact oracle, the golden values, the paper's own statement, and bad input."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from fedpareto import theory
from fedpareto.errors import SettingError
from fedpareto.front import nondominated

CASES = 10_000


def dominator(T, s, a, rounds, squares):
    """Return a (T', σ'²) of the box that dominates (T, σ²), found by trying every T' in exact numbers; None if there is none.

    Small is 1/T + aσ² and large is σ²/T, which is f2 turned round. For each T' the least σ'² that leaks no more loses
    least, so no other has to be tried.
    """
    for other in range(rounds[0], rounds[1] + 1):
        mine = max(s * other / T, squares[0])
        if squares[1] is not None and mine > squares[1]:
            continue
        loss, lost = Fraction(1, other) + a * mine, Fraction(1, T) + a * s
        if loss <= lost and (loss < lost or mine / other > s / T):
            return other, mine
    return None


def box_of(draw):
    """Draw k, K, q, the range of rounds and that of σ²; the hard ones often."""
    k = Fraction(str(draw.choice([0.1, 22.0, 25.0, 110.0, round(10 ** draw.uniform(-2, 4), 3)])))
    K = draw.choice([1, 5, 10, 40, draw.randrange(1, 1000)])
    m = draw.randrange(1, K + 1)  # clients asked, so that qK is whole
    rounds = draw.choice([(1, 1), (1, 2), (1, 10), (1, 40), (1, draw.randrange(1, 40)), (5, 20)])
    unit = Fraction(m) / k  # 1/a
    corners = [unit / n for n in (1, 2, 3, rounds[1], rounds[1] + 1)]
    top = draw.choice([None, None, *corners, 2 * unit, unit / 2, unit * Fraction(round(10 ** draw.uniform(-3, 1), 6))])
    top = None if top == 0 else top
    low = draw.choice([0, 0, 0, (top or unit) / 2, (top or unit) * Fraction(9, 10), unit / rounds[1], (top or unit) / 50])
    return k, K, Fraction(m, K), rounds, (min(Fraction(low), top or Fraction(low)), top)


def square_of(draw, T, unit, squares):
    """Draw σ²: anywhere, on an end of the band, or a hair beside one."""
    low, top = squares
    ends = [unit / (T + 1), unit / T, low, Fraction(0), low + unit / (T * max(T - 1, 1)), unit / max(T - 1, 1)]
    if top is not None:
        ends += [top, top * T / (T + 1)]
    s = draw.choice([*ends, unit * Fraction(round(10 ** draw.uniform(-3, 1), 9)), unit / T * Fraction(round(draw.uniform(0.3, 2), 9))])
    return s * draw.choice([1, 1, 1, Fraction(1_000_001, 1_000_000), Fraction(999_999, 1_000_000)])


def drawn(n, seed=1):
    draw = random.Random(seed)
    for _ in range(n):
        k, K, q, rounds, squares = box_of(draw)
        T = draw.choice([draw.randint(*rounds), *rounds])
        yield k, K, q, rounds, squares, T, square_of(draw, T, q * K / k, squares)


def root(square):
    return math.inf if square is None else math.sqrt(square)


def test_the_closed_form_agrees_with_an_exact_oracle():
    cases = list(drawn(CASES))
    expected = [squares[0] <= s and (squares[1] is None or s <= squares[1])
                and dominator(T, s, k / (q * K), rounds, squares) is None for k, K, q, rounds, squares, T, s in cases]
    columns = [[T, root(s), float(k), K, float(q), rounds[1], root(squares[1]), root(squares[0]), rounds[0]]
               for k, K, q, rounds, squares, T, s in cases]
    found = theory.is_pareto(*np.array(columns).T)
    wrong = [case for case, is_wrong in zip(cases, found != np.array(expected), strict=True) if is_wrong]
    assert wrong == []
    assert 0.2 < np.mean(expected) < 0.8  # the cases ask something


def test_the_oracle_is_right_where_random_points_can_tell():
    """What it calls dominated, its dominator dominates; what it does not, no random point does."""
    rng = np.random.default_rng(0)
    for k, K, q, rounds, squares, T, s in drawn(300, seed=2):
        if s < squares[0] or (squares[1] is not None and s > squares[1]) or s == 0:
            continue
        found = dominator(T, s, k / (q * K), rounds, squares)
        f1, f2 = theory.objectives(T, root(s), float(k), K, float(q))
        if found:
            g1, g2 = theory.objectives(found[0], root(found[1]), float(k), K, float(q))
            assert g1 <= f1 * (1 + 1e-12)
            assert g2 <= f2 * (1 + 1e-12)
        else:
            others = rng.integers(rounds[0], rounds[1] + 1, 2000)
            top = root(squares[1]) if squares[1] is not None else 5 * root(s)
            sigma = rng.uniform(root(squares[0]), top, 2000)
            g1, g2 = theory.objectives(others, np.maximum(sigma, 1e-12), float(k), K, float(q))
            assert not np.any((g1 < f1 * (1 - 1e-9)) & (g2 < f2 * (1 - 1e-9)))


# golden values (theorem3_exact) computed from Gu 2024, Eq. 8 with whole T: T_max, q, k, K, σ_max, T, low, high, low open
GOLDEN = [
    (200, 1.0, 25.0, 10, None, 1, 0.4472135954999579, None, False),
    (200, 1.0, 25.0, 10, None, 10, 0.19069251784911845, 0.21081851067789195, False),
    (200, 1.0, 25.0, 10, None, 40, 0.09877295966495896, 0.10127393670836667, False),
    (200, 1.0, 25.0, 10, None, 199, 0.044721359549995794, 0.044946657497549475, False),
    (150, 1.0, 25.0, 10, 0.1, 1, 0.07071067811865477, 0.1, True),
    (150, 1.0, 25.0, 10, 0.1, 10, 0.09534625892455924, 0.1, True),
    (150, 1.0, 25.0, 10, 0.1, 40, 0.09877295966495896, 0.1, False),
    (150, 1.0, 25.0, 10, 0.1, 149, 0.051639777949432225, 0.051987524491003634, False),
    (75, 1.0, 25.0, 10, 0.05, 1, 0.03535533905932738, 0.05, True),
    (75, 1.0, 25.0, 10, 0.05, 10, 0.04767312946227962, 0.05, True),
    (75, 1.0, 25.0, 10, 0.05, 40, 0.049386479832479485, 0.05, True),
    (75, 1.0, 25.0, 10, 0.05, 74, 0.0496655480858378, 0.05, True),
    (50, 1.0, 25.0, 10, 1.0, 1, 0.4472135954999579, 1.0, False),
    (50, 1.0, 25.0, 10, 1.0, 10, 0.19069251784911845, 0.21081851067789195, False),
    (50, 1.0, 25.0, 10, 1.0, 40, 0.09877295966495896, 0.10127393670836667, False),
    (50, 1.0, 25.0, 10, 1.0, 49, 0.08944271909999159, 0.09128709291752768, False),
    (150, 0.125, 110.0, 40, 0.035, 1, 0.024748737341529166, 0.035, True),
    (150, 0.125, 110.0, 40, 0.035, 10, 0.03337119062359573, 0.035, True),
    (150, 0.125, 110.0, 40, 0.035, 40, 0.03329635791060134, 0.03413943709994594, False),
    (150, 0.125, 110.0, 40, 0.035, 149, 0.017407765595569783, 0.01752499093081954, False),
]


@pytest.mark.parametrize(("last", "q", "k", "K", "top", "T", "low", "high", "is_open"), GOLDEN)
def test_bands_have_their_golden_ends(last, q, k, K, top, T, low, high, is_open):
    band = theory.band(T, k, K, q, last, top)
    assert float(band.low) == pytest.approx(low, rel=1e-12)
    assert float(band.high) == (math.inf if high is None else pytest.approx(high, rel=1e-12))
    assert bool(band.open_low) == is_open
    assert not band.open_high


@pytest.mark.parametrize(("T", "sigma", "f1", "f2"), [(40, 0.1, 0.05, 63.245553203367585),
                                                      (1, 0.632455532, 1.9999999998935079, 1.5811388301683793)])
def test_objectives_have_their_golden_values(T, sigma, f1, f2):
    """Computed from Gu 2024, Eq. 8 (golden values, eq8)."""
    assert [float(f) for f in theory.objectives(T, sigma, 25.0, 10, 1.0)] == pytest.approx([f1, f2], rel=1e-12)


# Gu 2024, Theorem 3 against the exact set: σ_max, T_max, T, printed low and high, exact low and high, low open; K = 10, q = 1, k = 25
DIFFERENCES = [
    (None, 200, 200, 0.044721, 0.044721, 0.0, 0.044834, False),
    (None, 200, 1, 0.632456, 0.632456, 0.447214, math.inf, False),
    (None, 200, 2, 0.447214, 0.447214, 0.365148, 0.632456, False),
    (None, 200, 100, 0.063246, 0.063246, 0.062932, 0.063564, False),
    (0.1, 150, 1, 0.1, 0.1, 0.070711, 0.1, True),
    (0.1, 150, 150, 0.0, 0.051640, 0.0, 0.051813, False),
    (0.05, 75, 1, 0.05, 0.05, 0.035355, 0.05, True),
]


@pytest.mark.parametrize(("top", "last", "T", "printed_low", "printed_high", "low", "high", "is_open"), DIFFERENCES)
def test_the_printed_theorem_and_the_exact_set_differ_as_documented(top, last, T, printed_low, printed_high, low, high, is_open):
    printed = theory.printed_set(k=25, clients=10, sample_ratio=1, rounds_max=last, sigma_max=top)
    row = printed[printed["rounds"] == T][-1]
    assert (row["low"], row["high"]) == pytest.approx((printed_low, printed_high), abs=1e-6)
    exact = theory.band(T, 25, 10, 1, last, top)
    assert (float(exact.low), float(exact.high)) == pytest.approx((low, high), abs=1e-6)
    assert bool(exact.open_low) == is_open


def test_the_printed_theorem_asks_twice_for_one_t_and_once_too_much():
    rows = theory.printed_set(k=110, clients=40, sample_ratio=0.125, rounds_max=150, sigma_max=0.035)
    twice = rows[rows["rounds"] == 37]
    assert twice["high"] == pytest.approx([0.035, 0.035050], abs=1e-6)
    assert twice["feasible"].tolist() == [True, False]
    exact = theory.band(37, 110, 40, 0.125, 150, 0.035)
    assert (float(exact.low), float(exact.high), bool(exact.open_low)) == (pytest.approx(0.034536, abs=1e-6), 0.035, True)


def test_the_printed_theorem_starts_at_round_zero_where_its_floor_is_zero():
    rows = theory.printed_set(k=25, clients=10, sample_ratio=1, rounds_max=50, sigma_max=1.0)
    assert rows[0].tolist() == (0, math.inf, math.inf, False)
    assert theory.is_pareto([1, 1, 1], [0.44, 0.45, 1.0], 25, 10, 1, 50, 1.0).tolist() == [False, True, True]


def test_a_floor_is_not_lost_to_rounding():
    """10/(25·0.1²) is 40, and 39 in floats."""
    assert theory.case(25, 10, 1, 40, 0.1) == "III"
    assert theory.case(25, 10, 1, 41, 0.1) == "II"
    assert theory.case(25, 10, 1, 41) == "I"
    rows = theory.printed_set(k=25, clients=10, sample_ratio=1, rounds_max=150, sigma_max=0.1)
    assert rows[rows["rounds"] == 40]["feasible"].tolist() == [True, True]


@pytest.mark.parametrize("top", [None, 0.01, 0.05, 0.1, 1.0])
@pytest.mark.parametrize("last", [1, 2, 75, 200])
def test_what_the_printed_theorem_names_and_the_box_holds_is_pareto(top, last):
    rows = theory.printed_set(k=25, clients=10, sample_ratio=1, rounds_max=last, sigma_max=top)
    rows = rows[rows["feasible"]]
    for end in ("low", "high"):
        assert theory.is_pareto(rows["rounds"], rows[end], 25, 10, 1, last, top).all()


@pytest.mark.parametrize("box", [{}, {"sigma_max": 0.1}, {"sigma_max": 0.02}, {"sigma_min": 0.05, "sigma_max": 0.15},
                                 {"sigma_min": 0.1, "sigma_max": 0.1}, {"rounds_min": 10}, {"rounds_min": 60, "sigma_min": 0.05}])
@pytest.mark.parametrize("points", [1, 2, 5])
def test_every_row_of_the_pareto_set_is_pareto_and_in_order(box, points):
    rows = theory.pareto_set(k=25, clients=10, sample_ratio=1, rounds_max=60, points=points, **box)
    assert rows.dtype.names == ("rounds", "sigma", "f1", "f2")
    assert len(rows) == points * (61 - box.get("rounds_min", 1))
    ends = box | {"rounds_max": 60}
    assert theory.is_pareto(rows["rounds"], rows["sigma"], 25, 10, 1, **ends).all()
    f1, f2 = theory.objectives(rows["rounds"], rows["sigma"], 25, 10, 1)
    assert np.array_equal(f1, rows["f1"])
    assert np.array_equal(f2, rows["f2"])
    assert np.isfinite(f2).all()
    assert (np.diff(f1) <= 1e-12 * f1[1:]).all()
    assert (np.diff(f2) >= -1e-12 * f2[1:]).all()


def test_the_rows_are_the_front_of_a_fine_grid():
    """No point of a fine grid reaches beyond the closed form's front, and the front is not beyond the grid's."""
    T, sigma = (a.ravel() for a in np.meshgrid(np.arange(1, 31), np.linspace(0.02, 0.3, 1000)))
    grid = np.stack(theory.objectives(T, sigma, 25, 10, 1), axis=1)
    rows = theory.pareto_set(k=25, clients=10, sample_ratio=1, rounds_max=30, sigma_min=0.02, sigma_max=0.3, points=50)
    front = np.stack([rows["f1"], rows["f2"]], axis=1)
    kept = grid[nondominated(grid)]  # [m,2]
    assert not (kept[None] < front[:, None] * (1 - 1e-9)).all(axis=2).any()
    assert (front[None] / kept[:, None]).max(axis=2).min(axis=1).max() < 1.02


def test_the_law_is_the_centre_of_its_band():
    T = np.arange(2, 199)
    sigma = theory.sigma_of(T, 25, 10, 1)
    assert 25 * sigma**2 * T == pytest.approx(10)
    band = theory.band(T, 25, 10, 1, 200)
    assert ((band.low < sigma) & (sigma < band.high)).all()
    f1, f2 = theory.objectives(T, sigma, 25, 10, 1)
    assert f1 * f2 == pytest.approx(2 * math.sqrt(25 / 10))  # the continuous curve, Eq. 17


def test_equal_points_of_neighbouring_bands_are_both_kept():
    """(T, 1/(a(T−1))) and (T−1, 1/(aT)) have the same objectives."""
    high, low = theory.band(7, 25, 10, 1, 50).high, theory.band(6, 25, 10, 1, 50).low
    ours, theirs = (np.array(theory.objectives(T, s, 25, 10, 1)) for T, s in ((7, high), (6, low)))
    assert ours == pytest.approx(theirs, rel=1e-14)
    assert theory.is_pareto([7, 6], [high, low], 25, 10, 1, 50).all()


GOOD = {"k": 25.0, "clients": 10, "sample_ratio": 1.0, "rounds_max": 50, "sigma_max": 0.1}
BAD = {
    "k of zero": ({"k": 0}, "k: must be finite and above 0, found 0. Estimate it from experimental Pareto points with estimate_k."),
    "negative k": ({"k": -1.0}, "k: must be finite and above 0, found -1. Estimate it from"),
    "k not a number": ({"k": math.nan}, "k: must be finite and above 0, found nan. Estimate it from"),
    "k a word": ({"k": "much"}, "k: must be a number or an array of numbers, found 'much'."),
    "no clients": ({"clients": 0}, "clients: must be finite and at least 1, found 0."),
    "nobody asked": ({"sample_ratio": 0.0}, "sample_ratio: must be finite and above 0 and at most 1, found 0. It is the share"),
    "more than all asked": ({"sample_ratio": 1.5}, "sample_ratio: must be finite and above 0 and at most 1, found 1.5. It is the share"),
    "less than one asked": ({"sample_ratio": 0.05},
                            "sample_ratio: must ask for at least one client, found 0.05 of 10 clients. Raise it to 0.1."),
    "no rounds": ({"rounds_max": 0}, "rounds_max: must be finite and at least 1 and at most 1e+15, found 0. Allow at least one round."),
    "half a round": ({"rounds_max": 1.5}, "rounds_max: must be a whole number, found 1.5. Allow at least one round."),
    "no noise allowed": ({"sigma_max": 0.0}, "sigma_max: must be above 0, found 0. Raise it, or leave it out for noise without a limit."),
    "sigma_max not a number": ({"sigma_max": math.nan}, "sigma_max: must be above 0, found nan. Raise it"),
    "negative least noise": ({"sigma_min": -0.1}, "sigma_min: must be finite and at least 0, found -0.1."),
    "crossed range": ({"sigma_min": 0.2}, "sigma_min: must be at most sigma_max, found 0.2 and 0.1."),
    "crossed rounds": ({"rounds_min": 60}, "rounds_min: must be at most rounds_max, found 60 and 50."),
    "too many rows": ({"points": 10**7}, "points: must give at most 10000000 rows, found 10000000 for each of 50 rounds. Ask for fewer."),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words(name):
    change, message = BAD[name]
    with pytest.raises(SettingError) as refused:
        theory.pareto_set(**(GOOD | change))
    assert str(refused.value).startswith(message)


def test_rounds_outside_the_range_have_no_band_and_are_not_pareto():
    with pytest.raises(SettingError, match=r"rounds: must lie between rounds_min and rounds_max, found 51 in 1 to 50. Widen"):
        theory.band(51, 25, 10, 1, 50)
    assert not theory.is_pareto(51, 0.1, 25, 10, 1, 50)
    with pytest.raises(SettingError, match=r"sigma: must be finite and at least 0, found -1."):
        theory.is_pareto(1, -1, 25, 10, 1, 50)
    with pytest.raises(SettingError, match=r"rounds: must be finite and at least 1, found 0. Count rounds from 1."):
        theory.sigma_of(0, 25, 10, 1)


def test_extreme_numbers_raise_no_warning():
    assert theory.objectives(1, 1e200, 1e-300, 10, 1)[0] > 1
    assert theory.objectives(1, 0.0, 25, 10, 1)[1] == math.inf
    theory.is_pareto([1, 10**15], [1e300, 1e-300], 1e300, 1, 1, 10**15, 1e308)
    theory.pareto_set(k=1e-300, clients=10, sample_ratio=1, rounds_max=3)
