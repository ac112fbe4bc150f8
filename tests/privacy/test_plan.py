"""The planner: round trips with the accountant, each thing left free, silos, and what cannot be held."""

from __future__ import annotations

import dataclasses
import json
import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.contract import Round, cohort
from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import SAMPLINGS, VIEWS, Privacy, epsilon
from fedpareto.privacy.plan import Planned, plan


def test_a_choice_has_these_fields() -> None:
    names = [f.name for f in dataclasses.fields(Planned)]
    assert names == ["noise_multiplier", "sigma", "clipping_norm", "cohort", "rounds", "epsilon", "delta", "view"]


@given(st.floats(0.2, 20.0), st.sampled_from(VIEWS), st.sampled_from(SAMPLINGS), st.integers(1, 300), st.integers(1, 500))
@settings(max_examples=25)
def test_free_noise_is_calibrated_to_the_target(target: float, view: str, sampling: str, m: int, rounds: int) -> None:
    (found,) = plan(target, 1e-5, 300, view=view, sampling=sampling, cohort=m, rounds=rounds, clipping_norm=0.5)
    seen = Round(300, np.array([m]), sampling, noise=found.sigma, norm=0.5).seen(view)
    priced = epsilon(Privacy(view, 1e-5), **seen.terms(np.array([rounds])))
    assert found.epsilon == priced[0] <= target
    assert found.epsilon > 0.99 * target
    assert found.noise_multiplier == pytest.approx(found.sigma * math.sqrt(m) / 0.5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("clients", [8, 1000, 1_000_000])
def test_a_plan_from_nothing_holds(clients: int, sampling: str) -> None:
    found = plan(2.0, None, clients, view="release", sampling=sampling)
    assert len({c.cohort for c in found}) >= 3
    assert len({c.rounds for c in found}) == 5
    assert all(c.epsilon <= 2 and c.delta == min(1e-5, 0.1 / clients) and c.view == "release" for c in found)
    assert max(c.cohort for c in found) == clients


def test_free_rounds_are_as_many_as_hold() -> None:
    for choice in plan(4.0, 1e-5, 200, view="release", sampling="poisson", noise_multiplier=1.5, cohort=[2, 20]):
        more = epsilon(Privacy("release", 1e-5), noise=choice.sigma, clipping_norm=1, cohort=choice.cohort, clients=200,
                       rounds=choice.rounds + 1, sampling="poisson")
        assert choice.epsilon <= 4.0 < float(more)
        assert choice.noise_multiplier == pytest.approx(1.5)


def test_endless_rounds_stop_at_a_hundred_thousand() -> None:
    (found,) = plan(1e6, 1e-5, 10, view="secagg", sampling="fixed", noise_multiplier=1e3, cohort=10)
    assert found.rounds == 100_000


def test_free_cohorts_are_those_that_hold() -> None:
    # golden values measured with dp-accounting 0.6.0: 26.835 at m = 1, 7.793 at 10, 19.131 at 100, so only the middle holds
    found = plan(8.9, 1e-5, 100, view="release", sampling="poisson", sigma=0.3, rounds=100)
    assert [c.cohort for c in found] == [5, 10, 19]
    assert found[1].epsilon == pytest.approx(7.793, rel=1e-3)
    below, above = plan(8.9, 1e-5, 100, view="release", sampling="poisson", sigma=0.3, rounds=100, cohort=[4, 20])
    assert below.epsilon > 8.9
    assert above.epsilon > 8.9


def test_a_cohort_that_no_share_of_the_clients_meets_is_found() -> None:
    found = plan(0.5, 1e-6, 10_000, view="release", sampling="poisson", sigma=0.3, rounds=100)
    assert any(c.cohort < 100 for c in found)
    assert all(c.epsilon <= 0.5 for c in found)


def test_with_rounds_and_cohort_free_one_that_holds_a_round_is_found() -> None:
    asked = {"view": "release", "sampling": "poisson", "noise_multiplier": 0.8}
    shares = [plan(0.05, 1e-6, 10_000, cohort=m, rounds=1, **asked)[0].epsilon for m in (100, 300, 1000, 3000, 10_000)]
    assert min(shares) > 0.05
    assert {c.cohort for c in plan(0.05, 1e-6, 10_000, **asked)} >= {1}


@given(st.data())
@settings(max_examples=30)
def test_a_free_cohort_is_sought_among_all_of_them(data: st.DataObject) -> None:
    """Whether any holds, and the smallest and the largest that do, are those of pricing every cohort."""
    clients = data.draw(st.integers(2, 60))
    noise = data.draw(st.sampled_from(["sigma", "noise_multiplier"]))
    asked = {
        "view": data.draw(st.sampled_from(VIEWS)),
        "sampling": data.draw(st.sampled_from(SAMPLINGS)),
        "adjacency": data.draw(st.sampled_from(["zero_out", "replace"])),
        "dropouts": data.draw(st.integers(0, min(3, clients - 1))),
        "rounds": data.draw(st.integers(1, 300)),
        noise: 10 ** data.draw(st.floats(-1, 1)),
    }
    fewest = 1 if asked["view"] == "server" else asked["dropouts"] + 1
    every = plan(1.0, 1e-5, clients, cohort=list(range(fewest, clients + 1)), **asked)
    prices = [c.epsilon for c in every]
    target = max(data.draw(st.sampled_from([0.99, 1.0, 1.1, 3.0])) * min(prices), 1e-9)
    holding = [c.cohort for c in every if c.epsilon <= target]
    if not holding:
        with pytest.raises(SettingError, match="no choice holds"):
            plan(target, 1e-5, clients, **asked)
        return
    found = [c.cohort for c in plan(target, 1e-5, clients, **asked)]
    assert (found[0], found[-1]) == (holding[0], holding[-1])
    assert set(found) <= set(holding)


def test_with_everything_given_it_is_priced_even_above_the_target() -> None:
    found = plan(8.0, 1e-5, 100, view="release", sampling="poisson", sigma=0.3, rounds=100, cohort=[1, 10])
    assert [c.epsilon for c in found] == pytest.approx([26.835, 7.793], rel=1e-3)


def test_inside_silos_it_is_dp_sgd_on_records() -> None:
    (found,) = plan(3.0, 1e-5, 5, unit="record", records=10_000, batch_size=100, local_steps=10, rounds=50, clipping_norm=2.0)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(found.noise_multiplier)), 500)
    assert 0.998 * 3 < accountant.get_epsilon(1e-5) <= 3.0
    assert found.epsilon <= 3.0
    assert found.sigma == pytest.approx(2 * found.noise_multiplier)
    assert (found.view, found.cohort) == ("server", 5)
    (priced,) = plan(3.0, 1e-5, 5, unit="record", records=10_000, batch_size=100, local_steps=10, rounds=50, clipping_norm=2.0,
                     noise_multiplier=found.noise_multiplier, cohort=5)
    assert priced.epsilon == pytest.approx(found.epsilon, rel=1e-9)
    (free,) = plan(3.0, 1e-5, 5, unit="record", records=10_000, batch_size=100, local_steps=10, clipping_norm=2.0,
                   sigma=found.sigma * 1.001)
    assert free.rounds in (50, 51)


def test_delta_inside_silos_follows_the_records() -> None:
    (found,) = plan(3.0, None, 5, unit="record", records=100_000, batch_size=100, local_steps=10, rounds=5)
    assert found.delta == pytest.approx(0.1 / 500_000)


def test_a_replaced_record_needs_more_noise() -> None:
    choices = [plan(3.0, 1e-5, 5, unit="record", adjacency=a, records=10_000, batch_size=100, local_steps=10, rounds=50)[0]
               for a in ("zero_out", "replace")]
    assert choices[1].sigma > choices[0].sigma


REFUSED = [
    ({"target_epsilon": 0.0}, "target_epsilon: must be above 0, found 0.0"),
    ({"target_epsilon": math.nan}, "target_epsilon: must be a finite number, found nan"),
    ({"target_delta": 1.0}, "target_delta: must be at most 0.5, found 1.0"),
    ({"target_delta": 0.0}, "target_delta: must be above 0, found 0.0"),
    ({"cohort": 11}, "cohort: must lie between 1 and the 10 clients, found 11"),
    ({"cohort": 0}, "cohort: must lie between 1 and the 10 clients, found 0"),
    ({"rounds": 0}, "rounds: must be at least 1, found 0"),
    ({"rounds": [5, 1.5]}, "rounds: must be a whole number, found 1.5"),
    ({"sigma": 0.0}, "sigma: must be above 0, found 0.0. Without noise nothing holds"),
    ({"noise_multiplier": -1.0}, "noise_multiplier: must be above 0"),
    ({"sigma": 1.0, "noise_multiplier": 1.0}, "sigma: must not be given beside noise_multiplier"),
    ({"clipping_norm": 0.0}, "clipping_norm: must be above 0"),
    ({"clients": 0}, "clients: must be at least 1, found 0"),
    ({"view": "sever"}, "view: must be one of server, secagg, release, found 'sever'. Did you mean 'server'"),
    ({"sampling": "none"}, "sampling: must be one of"),
    ({"sigma": 0.01}, "plan: no choice holds ε = 1 at δ = 1e-05; the least ε found is 5426, with cohort 1 and rounds 1. Raise the noise"),
    ({"records": 100}, "records: must be given with batch_size, local_steps and unit record"),
    ({"unit": "record", "records": 100, "batch_size": 200, "local_steps": 1}, "batch_size: must be at most the 100 records of a silo, found 200"),
    ({"colluders": -90}, "colluders: must be at least 0, found -90"),
    ({"dropouts": -1}, "dropouts: must be at least 0, found -1"),
    ({"dropouts": 0.5}, "dropouts: must be a whole number, found 0.5"),
    ({"adjacency": "replaced"}, "adjacency: must be one of zero_out, replace, found 'replaced'. Did you mean 'replace'"),
    ({"unit": "records"}, "unit: must be one of client, record, found 'records'"),
    ({"clients": 10.5}, "clients: must be a whole number, found 10.5"),
    ({"clients": True}, "clients: must be a whole number, found True"),
    ({"cohort": 2.5}, "cohort: must be a whole number, found 2.5"),
    ({"cohort": True}, "cohort: must be a whole number, found True"),
    ({"cohort": math.nan, "sampling": "poisson"}, "cohort: must be a finite number, found nan"),
    ({"cohort": []}, "cohort: must be a number, or several, found none"),
    ({"rounds": True}, "rounds: must be a whole number, found True"),
    ({"sigma": True}, "sigma: must be a number, found True"),
    ({"clipping_norm": math.inf}, "clipping_norm: must be a finite number"),
    ({"target_epsilon": True}, "target_epsilon: must be a number, found True"),
    ({"unit": "record", "records": 100.5, "batch_size": 10, "local_steps": 1}, "records: must be a whole number, found 100.5"),
    ({"unit": "record", "records": 100, "batch_size": 10, "local_steps": 1.5}, "local_steps: must be a whole number, found 1.5"),
    ({"unit": "record", "records": 100, "batch_size": True, "local_steps": 1}, "batch_size: must be a whole number, found True"),
    ({"unit": "record", "records": 100, "batch_size": 10, "local_steps": 1, "colluders": -1}, "colluders: must be at least 0"),
    ({"view": "secagg", "dropouts": 3, "cohort": 3}, "cohort: must leave at least one honest client after 3 dropouts"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_planned_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        plan(**{"target_epsilon": 1.0, "target_delta": 1e-5, "clients": 10} | change)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_planned_with() -> None:
    asked = {"target_epsilon": np.float64(2), "target_delta": 1e-5, "clients": np.int64(100), "cohort": np.array([5, 10]),
             "rounds": np.int32(7), "dropouts": np.int8(1), "clipping_norm": np.float32(0.5)}
    assert plan(**asked) == plan(2.0, 1e-5, 100, cohort=[5, 10], rounds=7, dropouts=1, clipping_norm=0.5)
    json.dumps([dataclasses.asdict(c) for c in plan(**asked)])


@pytest.mark.parametrize("clients", [49, 98, 103, 1000])
def test_an_expected_cohort_is_priced_as_a_study_prices_it(clients: int) -> None:
    """m / K times K is not always m: 1 / 49 * 49 is less than one client."""
    for m in (1, clients // 3, clients - 1):
        (found,) = plan(4.0, 1e-5, clients, view="release", sampling="poisson", cohort=m, rounds=3)
        seen = Round(clients, cohort(m / clients, clients, "poisson"), "poisson", noise=found.sigma, norm=1.0).seen("release")
        assert seen.cohort == m
        assert found.epsilon == float(epsilon(Privacy("release", 1e-5), **seen.terms(3)))
