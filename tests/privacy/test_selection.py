"""The privacy cost of the search itself."""

from __future__ import annotations

import math

import pytest

from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import SAMPLINGS, VIEWS, Privacy, epsilon, terms
from fedpareto.privacy.gaussian import gaussian_epsilon
from fedpareto.privacy.selection import (
    random_number_note,
    random_selection_epsilon,
    selection_epsilon,
    selection_guarantee,
)
from fedpareto.privacy.statement import Guarantee


def cost(view: str = "secagg", sampling: str = "poisson", trials: int = 20, repeats: int = 1, noise: object = 2.0) -> Guarantee:
    return selection_guarantee(Privacy(view, 1e-5), noise=noise, clipping_norm=1.0, cohort=10, clients=100, rounds=20,  # type: ignore[arg-type]
                               sampling=sampling, trials=trials, repeats=repeats)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_trials_compose_as_so_many_more_rounds(view: str, sampling: str) -> None:
    whole = cost(view, sampling, trials=10, repeats=3)
    longer = epsilon(Privacy(view, 1e-5), noise=2.0, clipping_norm=1.0, cohort=10, clients=100, rounds=600, sampling=sampling)
    assert whole.epsilon == pytest.approx(float(longer), rel=1e-3)
    assert whole.rounds == 600
    assert "10 trials × 3 trainings × 20 rounds" in whole.notes[0]
    assert not any("random" in note for note in whole.notes)


def test_candidates_are_priced_as_the_worst_of_them() -> None:
    assert cost(noise=[2.0, 5.0, 9.0]).epsilon == pytest.approx(cost(noise=2.0).epsilon, rel=1e-9)
    found = selection_epsilon(Privacy("server", 1e-5), noise=[1.0, 4.0], clipping_norm=[1.0, 8.0], cohort=[5, 10], clients=100,
                              rounds=[10, 20], sampling="fixed", trials=2)
    assert found == pytest.approx(float(gaussian_epsilon(0.5 / math.sqrt(40), 1e-5)))


def test_a_single_trial_costs_its_own_training() -> None:
    alone = float(epsilon(Privacy("release", 1e-5), noise=2.0, clipping_norm=1.0, cohort=10, clients=100, rounds=20, sampling="fixed"))
    assert cost("release", "fixed", trials=1).epsilon == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_random_number_of_trials_costs_less_than_all_and_more_than_one(sampling: str) -> None:
    privacy = Privacy("release", 1e-5)
    worst = terms(privacy, 1.0, 1.0, 10, 100, 20, sampling, None)
    one = float(epsilon(privacy, noise=1.0, clipping_norm=1.0, cohort=10, clients=100, rounds=20, sampling=sampling))
    for shape in (math.inf, 1.0, 0.0):
        few, many = (random_selection_epsilon(worst, mean, 100, 10, shape) for mean in (5, 50))
        assert one < few < many
    assert many < selection_epsilon(privacy, noise=1.0, clipping_norm=1.0, cohort=10, clients=100, rounds=20, sampling=sampling, trials=500)


def at_random(view: str = "release", trials: int = 20, repeats: int = 1, noise: object = 2.0) -> tuple[str, ...]:
    return random_number_note(Privacy(view, 1e-5), noise=noise, clipping_norm=1.0, cohort=10, clients=100, rounds=20, sampling="poisson",
                              view=view, trials=trials, repeats=repeats)


def told(notes: tuple[str, ...]) -> float:
    (note,) = notes
    assert "points are independent draws here" in note
    return float(note.split("ε = ")[1].split()[0])


def test_a_random_number_is_priced_by_trials_all_of_whose_trainings_are_one() -> None:
    """The trainings of a trial share its settings, so they are no independent draws."""
    worst = terms(Privacy("release", 1e-5), 2.0, 1.0, 10, 100, 60, "poisson", None)
    exact = min(random_selection_epsilon(worst, 20, 100, 10, shape) for shape in (math.inf, 1.0, 0.0))
    assert exact <= told(at_random(repeats=3)) <= exact * 1.001
    assert told(at_random(noise=[2.0, 9.0])) == told(at_random())
    assert told(at_random()) < cost("release").epsilon


def test_a_random_number_says_nothing_where_all_is_seen_or_nothing_is_chosen() -> None:
    assert at_random("server") == at_random("secagg") == at_random(trials=1) == at_random(noise=0.0) == ()


def test_an_adaptive_search_says_that_it_is_priced_as_the_worst_point() -> None:
    given = {"noise": 2.0, "clipping_norm": 1.0, "cohort": 10, "clients": 100, "rounds": 20, "sampling": "fixed", "trials": 5}
    adaptive = selection_guarantee(Privacy("secagg", 1e-5), **given, chosen="adaptive")  # type: ignore[arg-type]
    assert "the worst point of the search space, because which points are trained depends on what earlier ones showed" in adaptive.notes[0]
    assert adaptive.epsilon == selection_guarantee(Privacy("secagg", 1e-5), **given).epsilon  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="chosen: must be one of adaptive, listed, drawn, found 'luck'"):
        selection_guarantee(Privacy("secagg", 1e-5), **given, chosen="luck")  # type: ignore[arg-type]


def test_no_noise_promises_nothing() -> None:
    assert cost("release", noise=0.0).epsilon == math.inf


@pytest.mark.parametrize(("change", "message"), [({"trials": 0}, "trials: must be at least 1, found 0"),
                                                 ({"repeats": 1.5}, "repeats: must be a whole number, found 1.5")])
def test_trials_are_counted_in_whole_numbers(change: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cost(**change)  # type: ignore[arg-type]


def test_the_random_number_counts_colluders_as_the_accountants_do() -> None:
    given = {"noise": 20.0, "clipping_norm": 1.0, "cohort": 10, "rounds": 20, "sampling": "fixed", "view": "release"}
    some = random_number_note(Privacy("release", 1e-5, colluders=9), 8, 1, clients=30, **given)[0]
    fewer = random_number_note(Privacy("release", 1e-5), 8, 1, clients=21, **(given | {"noise": 20.0 * (1 / 10) ** 0.5}))[0]
    assert some.split("ε = ")[1].split(" ")[0] == fewer.split("ε = ")[1].split(" ")[0]
