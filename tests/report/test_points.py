"""What a study shows: the front, the curve, the recommendation."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto import Objective, Random, Study, pick, view
from fedpareto.errors import SettingError
from fedpareto.front import hypervolume
from fedpareto.report.choose import Aim, recommend
from fedpareto.report.text import front_csv, front_data, summary, table, thinned
from fedpareto.testing import continuous
from fedpareto.trials import Trial


def study(limit=None, m=2):
    return Study("looked at", continuous(lambda x: x[:, :m], m, m, limit=limit, reference=1.0), Random(), budget=10)


def trials(*rows, failed=()):
    done = [Trial(i, 0, (0.5, 0.5), {"x1": float(i), "x2": 0.5}, "done", {f"f{j + 1}": v for j, v in enumerate(row)})
            for i, row in enumerate(rows)]
    lost = [Trial(len(rows) + i, 0, (0.5, 0.5), {"x1": 0.5, "x2": 0.5}, "failed", error=why) for i, why in enumerate(failed)]
    return [*done, *lost]


def test_the_front_is_what_no_feasible_point_dominates_in_order():
    seen = view(study(limit=0.8), trials((0.5, 0.5), (0.2, 0.7), (0.6, 0.6), (0.05, 0.9), (0.2, 0.7)))
    assert [p.trial for p in seen.front] == [1, 0]
    assert [p.feasible for p in seen.points] == [True, True, True, False, True]


def test_where_no_point_is_feasible_the_front_says_so():
    seen = view(study(limit=0.1), trials((0.5, 0.5), (0.2, 0.7)))
    assert [p.feasible for p in seen.front] == [False, False]
    assert (seen.hypervolume, seen.recommended) == (0.0, None)
    assert seen.why == "No trial holds every limit: loosen a limit, widen a range or raise the budget."
    assert "2 on the front, none of them within the limits" in summary(seen)


def test_the_curve_is_the_hypervolume_of_each_prefix():
    y = np.random.default_rng(0).random((60, 2))
    seen = view(study(limit=0.7), trials(*map(tuple, y), failed=["diverged"]))
    expected = [hypervolume(y[: i + 1][y[: i + 1, 1] <= 0.7], np.ones(2)) for i in range(60)]
    assert seen.curve == pytest.approx([*expected, expected[-1]])


def test_the_recommended_point_is_the_knee_and_says_what_its_neighbours_cost():
    seen = view(study(), trials((0.0, 1.0), (0.1, 0.2), (0.9, 0.1)))
    assert seen.recommended.trial == 1
    assert "From here to trial 0: 0.1 less f1 for 0.8 more f2." in seen.why
    assert "From here to trial 2: 0.1 less f2 for 0.8 more f1." in seen.why


def test_a_tiny_gain_does_not_outweigh_a_large_one():
    seen = view(study(), trials((0.06, 0.75), (0.066, 0.0)))
    assert seen.recommended.trial == 1


def test_a_front_of_one_point_is_recommended_and_says_it_is_alone():
    seen = view(study(), trials((0.1, 0.1), (0.2, 0.2)))
    assert (seen.recommended.trial, seen.why[:27]) == (0, "The only point on the front")


def test_pick_takes_the_least_of_what_is_preferred_within_limits():
    seen = view(study(limit=0.8), trials((0.5, 0.5), (0.2, 0.7), (0.6, 0.2), (0.1, 0.9)))
    assert pick(seen, {"f2": 0.6}, prefer="f1")[0].trial == 0
    assert pick(seen, {}, prefer="f1")[0].trial == 1
    assert pick(seen, {"f1": 0.55}, prefer="f2") == (seen.points[0], "The least f2 under f1 ≤ 0.55.")
    with pytest.raises(SettingError, match=r"some trial must hold f1 ≤ 0.01, found none among 4. The least of each by itself, in trials of their own: f1 0.1, f2 0.2"):
        pick(seen, {"f1": 0.01})


def test_pick_on_a_study_where_everything_failed_says_so():
    with pytest.raises(SettingError, match=r"found none among 0\. Nothing was measured"):
        pick(view(study(), trials(failed=["diverged"])), {})


def test_an_empty_study_can_be_looked_at():
    seen = view(study(), [])
    assert (seen.evaluations, seen.hypervolume, seen.front) == (0, 0.0, ())
    assert front_data(seen)["points"] == []
    assert front_csv(seen) == "trial,feasible\n"


def test_a_long_front_is_thinned_evenly_and_keeps_the_recommended_point():
    seen = view(study(), trials(*[(i / 50, 1 - i / 50) for i in range(1, 50)]))
    shown = thinned(seen, 12)
    assert seen.recommended in shown
    assert 12 <= len(shown) <= 13
    assert table(seen).row_count == len(shown)


def test_a_proxy_is_named_as_one_wherever_it_is_shown():
    objectives = (Objective("f1"), Objective("f2", limit=0.8, proxy="Kang 2023, Eq. 13"))
    from dataclasses import replace

    base = study()
    seen = view(replace(base, problem=replace(base.problem, objectives=objectives)), trials((0.5, 0.5)))
    assert front_data(seen)["proxies"] == {"f2": "Kang 2023, Eq. 13"}
    assert str(table(seen).columns[3].header) == "f2 ≤ 0.8 (proxy)"


def test_a_pick_of_one_useful_point_says_that_others_are_no_use():
    """Two on the front, one of which does not beat always giving the same answer."""
    asked = (Objective("f1"), Objective("f2"))
    aim = Aim(asked, loss="f1", measure="f1", trivial=0.85)
    points = view(study(), trials((0.2, 0.4), (0.9, 0.1))).front
    chosen = recommend(points, aim)
    assert chosen.point.trial == 0
    assert chosen.why == "The only point on the front that beats always giving the same answer, which has f1 0.85."


def test_a_view_and_a_run_give_the_hypervolume_and_its_share():
    seen = view(study(), trials((0.5, 0.5)))
    assert "hypervolume 0.25, share 0.25 of the reference box, recommended" in repr(seen)
