"""The planner: round trips with the accountant, each thing left free, silos, and what cannot be held."""

from __future__ import annotations

import dataclasses
import math
import time

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.contract import Round
from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import SAMPLINGS, VIEWS, Privacy, epsilon
from fedpareto.privacy.plan import Planned, plan


def test_a_choice_has_these_fields() -> None:
    names = [f.name for f in dataclasses.fields(Planned)]
    assert names == ["noise_multiplier", "sigma", "clipping_norm", "cohort", "rounds", "epsilon", "delta", "view"]


@given(st.floats(0.2, 20.0), st.sampled_from(VIEWS), st.sampled_from(SAMPLINGS), st.integers(1, 300), st.integers(1, 500))
@settings(max_examples=25)
def test_free_noise_is_calibrated_to_the_target(target: float, view: str, sampling: str, cohort: int, rounds: int) -> None:
    (found,) = plan(target, 1e-5, 300, view=view, sampling=sampling, cohort=cohort, rounds=rounds, clipping_norm=0.5)
    seen = Round(300, cohort, sampling, noise=found.sigma, norm=0.5).seen(view)
    priced = epsilon(Privacy(view, 1e-5), **seen.terms(rounds))
    assert found.epsilon == float(priced) <= target
    assert found.epsilon > 0.99 * target
    assert found.noise_multiplier == pytest.approx(found.sigma * math.sqrt(cohort) / 0.5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("clients", [8, 1000, 1_000_000])
def test_a_plan_from_nothing_takes_seconds_and_holds(clients: int, sampling: str) -> None:
    start = time.perf_counter()
    found = plan(2.0, None, clients, view="release", sampling=sampling)
    assert time.perf_counter() - start < 8
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
    assert [c.cohort for c in found] == [10]
    assert found[0].epsilon == pytest.approx(7.793, rel=1e-3)


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
    ({"target_epsilon": 0.0}, "target_epsilon: must be above 0 and finite, found 0.0"),
    ({"target_epsilon": math.nan}, "target_epsilon: must be above 0"),
    ({"target_delta": 1.0}, "target_delta: must lie between 0 and 1"),
    ({"target_delta": 0.0}, "target_delta: must lie between 0 and 1"),
    ({"cohort": 11}, "cohort: must lie between 1 and the 10 clients, found 11"),
    ({"cohort": 0}, "cohort: must lie between 1 and the 10 clients, found 0"),
    ({"rounds": 0}, "rounds: must be whole and at least 1, found 0"),
    ({"rounds": [5, 1.5]}, "rounds: must be whole and at least 1, found 1.5"),
    ({"sigma": 0.0}, "sigma: must be above 0 and finite, found 0.0. Without noise nothing holds"),
    ({"noise_multiplier": -1.0}, "noise_multiplier: must be above 0"),
    ({"sigma": 1.0, "noise_multiplier": 1.0}, "sigma: must not be given beside noise_multiplier"),
    ({"clipping_norm": 0.0}, "clipping_norm: must be above 0"),
    ({"clients": 0}, "clients: must be above 0"),
    ({"view": "sever"}, "view: must be one of server, secagg, release, found 'sever'. Did you mean 'server'"),
    ({"sampling": "none"}, "sampling: must be one of"),
    ({"sigma": 0.01}, "plan: no choice holds ε = 1 at δ = 1e-05; the least ε found is 5426, with cohort 1 and rounds 1. Raise the noise"),
    ({"records": 100}, "records: must be given with batch_size, local_steps and unit record"),
    ({"unit": "record", "records": 100, "batch_size": 200, "local_steps": 1}, "batch_size: must lie between 1 and records"),
    ({"view": "secagg", "dropouts": 3, "cohort": 3}, "cohort: must leave at least one honest client after 3 dropouts"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_planned_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        plan(**{"target_epsilon": 1.0, "target_delta": 1e-5, "clients": 10} | change)  # type: ignore[arg-type]
