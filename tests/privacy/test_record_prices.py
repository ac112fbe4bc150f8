"""ε of a record that local steps hide: against dp-accounting, of the client that counts most, and of several records of one person."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest

from fedpareto import (
    Data,
    DpSgd,
    Federation,
    Lr,
    Objective,
    Privacy,
    Randomization,
    Training,
    Unprotected,
)
from fedpareto.contract import FLOAT32, Records
from fedpareto.errors import SettingError
from fedpareto.privacy import plan, record_epsilon
from fedpareto.privacy.gaussian import gaussian_epsilon
from fedpareto.privacy.records import person_epsilon, record_multiplier
from fedpareto.space import Float

RELATION = dp_accounting.NeighboringRelation
ONE = np.array([1.0])


def theirs(z: float, q: float, steps: int, delta: float, replaced: bool = False, interval: float = 1e-4) -> float:
    """Return ε of Poisson-sampled Gaussian steps by dp-accounting."""
    accountant = dp_accounting.pld.PLDAccountant(RELATION.REPLACE_ONE if replaced else RELATION.ADD_OR_REMOVE_ONE, interval)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), steps)
    return float(accountant.get_epsilon(delta))


def settings(count: int):
    """Yield random settings: noise, norm, batch, records, rounds, steps, δ and neighbour, with an ε below 30 or so."""
    draw = np.random.default_rng(18)
    while count:
        z, batch = math.exp(draw.uniform(math.log(0.6), math.log(8))), int(math.exp(draw.uniform(0, 6)))
        size = int(batch * math.exp(draw.uniform(0, 7)))
        rounds, steps = int(math.exp(draw.uniform(0, 4))), int(math.exp(draw.uniform(0, 4)))
        if batch / size * math.sqrt(rounds * steps) / z < 3:
            count -= 1
            yield z, math.exp(draw.uniform(-3, 3)), batch, size, rounds, steps, 10 ** draw.uniform(-8, -4), draw.random() < 0.3


@pytest.mark.parametrize("chosen", [slice(0, 20), pytest.param(slice(20, 200), marks=pytest.mark.slow)], ids=["20", "the other 180"])
def test_of_200_random_settings_none_is_stated_below_dp_accounting(chosen):
    for z, norm, batch, size, rounds, steps, delta, replaced in list(settings(200))[chosen]:
        records = Records(np.array([z * norm]), np.array([norm]), np.array([batch]), (size,), steps)
        privacy = Privacy(unit="record", target_delta=delta, adjacency="replace" if replaced else "zero_out")
        ours = float(record_epsilon(privacy, records, np.array([rounds]), delta)[0])
        if batch == size:
            exact = float(gaussian_epsilon(z / FLOAT32 / math.sqrt(rounds * steps) / (1 + replaced), delta))
            assert ours == pytest.approx(exact, rel=1e-9)
            continue
        q, interval = batch / size, 1e-4 if rounds * steps < 500 else 1e-3
        right = theirs(z, q, rounds * steps, delta, replaced, interval)
        finest = right if interval == 1e-4 else right - interval * math.sqrt(rounds * steps)
        assert ours >= finest * (1 - 3e-3) - 2e-4  # dp-accounting rounds losses up, each by up to an interval
        assert ours <= right * 1.02 + 1e-3


def test_the_client_whose_records_are_drawn_most_counts():
    def epsilon(*sizes: int, **rest) -> float:
        records = Records(1.5 * ONE, ONE, 10 * ONE, sizes, **rest)
        return float(record_epsilon(Privacy(unit="record"), records, np.array([5.0]), 1e-5)[0])

    assert epsilon(100, 1000, steps=3) == epsilon(100, steps=3) > epsilon(1000, steps=3)
    sizes = [37, 100, 104, 1000]
    assert epsilon(*sizes, epochs=2) == max(epsilon(size, epochs=2) for size in sizes)


@pytest.mark.parametrize("times", [{"steps": 3}, {"epochs": 2}], ids=str)
def test_no_client_that_a_price_covers_costs_more(times):
    sizes, privacy = (37, 100, 104), Privacy(unit="record")

    def epsilon(*of: int) -> float:
        return float(record_epsilon(privacy, Records(1.5 * ONE, ONE, 10 * ONE, of, **times), np.array([5.0]), 1e-5)[0])

    priced, stated = Records(1.5 * ONE, ONE, 10 * ONE, sizes, **times), epsilon(*sizes)
    covered = {size for size in range(10, 200) if priced.covers(size)}
    assert covered == set(range(37, 200) if "steps" in times else [*range(37, 41), 100, *range(104, 111)])
    assert all(epsilon(size) <= stated for size in covered)
    assert all(epsilon(size) > stated for size in (10, 20, 30, 36))
    assert Records(ONE, ONE, 10 * ONE, (100,), epochs=2, batches="shuffled").covers(3)  # chance hides nothing there


def test_shuffled_batches_are_one_gaussian_mechanism_a_pass():
    records = Records(2.0 * ONE, ONE, 10 * ONE, (100, 40), epochs=3, batches="shuffled")
    found = record_epsilon(Privacy(unit="record"), records, np.array([4.0]), 1e-5)[0]
    assert found == pytest.approx(float(gaussian_epsilon(2.0 / FLOAT32 / math.sqrt(12), 1e-5)), rel=1e-9)


def groups(z: float, q: float, steps: int, delta: float, people: int) -> float:
    """Return ε of so many records that are each drawn by chance, exactly (Ganesh 2024), by dp-accounting."""
    chances = [math.comb(people, i) * q**i * (1 - q) ** (people - i) for i in range(people + 1)]
    accountant = dp_accounting.pld.PLDAccountant(RELATION.ADD_OR_REMOVE_ONE, 1e-3)
    accountant.compose(dp_accounting.dp_event.MixtureOfGaussiansDpEvent(z, list(range(people + 1)), chances), steps)
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize(("z", "q", "steps", "people"), [(1.0, 0.02, 100, 2), (1.0, 0.02, 100, 5), (4.0, 0.2, 50, 3), (2.0, 0.01, 400, 8)])
def test_several_records_of_one_person_are_priced_above_what_they_cost_together(z, q, steps, people):
    found = person_epsilon(z, q, steps, 1e-5, "poisson", people)
    exact = groups(z, q, steps, 1e-5, people)
    assert exact * 0.99 <= found <= exact * 3  # a bound, and not a tight one
    assert found > person_epsilon(z, q, steps, 1e-5, "poisson", 1)


def test_several_records_without_chance_cost_as_if_the_noise_were_so_many_times_less():
    assert person_epsilon(6.0, 1.0, 9, 1e-5, "poisson", 3) == pytest.approx(float(gaussian_epsilon(6 / 3 / 3, 1e-5)), rel=1e-9)


@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("pair", ["poisson", "poisson_replace"])
def test_the_noise_that_is_solved_for_holds_and_hardly_less_does(pair, people):
    z = record_multiplier(3.0, 0.05, 200, 1e-5, pair, people)
    assert person_epsilon(z, 0.05, 200, 1e-5, pair, people) <= 3.0
    assert person_epsilon(z * 0.999, 0.05, 200, 1e-5, pair, people) > 3.0


def federation(privacy: Privacy, local=None, mechanism=None, objectives=(), **training) -> Federation:
    asked = {"rounds": 6, "local_steps": 4, "batch_size": 16} | training
    return Federation(Data("digits", 5), Lr(), Training(0.5, **asked), mechanism or Unprotected(), objectives, privacy=privacy,
                      local=local or DpSgd(Float("record_noise_multiplier", 0.7, 4.0), 0.5))


@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
@pytest.mark.parametrize("people", [1, 4])
@pytest.mark.parametrize("batches", ["poisson", "shuffled"])
def test_a_statement_gives_the_epsilon_of_the_row_and_says_what_it_counts(batches, people, adjacency):
    privacy = Privacy(unit="record", adjacency=adjacency, records_per_person=people)
    passes = {} if batches == "poisson" else {"local_steps": 0, "local_epochs": 2}
    problem = federation(privacy, DpSgd(Float("record_noise_multiplier", 0.7, 4.0), 0.5, batches), **passes)
    row = problem.columns({"record_noise_multiplier": [1.3]}, 1)
    promised = problem.guarantee({"record_noise_multiplier": 1.3})
    assert promised.epsilon == pytest.approx(row["epsilon"][0], rel=2e-3)
    assert promised.epsilon <= row["epsilon"][0] * (1 + 1e-9)
    said = promised.statement()
    assert f"record level: training looks alike to whoever sees each client's upload (view server), whether or not {'up to 4 records' if people > 1 else 'one record'}" in said
    assert f"(adjacency {adjacency}). It counts 6 rounds of " in said
    counted = "4 local steps of a client with 287 records, each in a step by a chance of its own of 0.05575 (poisson batches)"
    assert (counted if batches == "poisson" else "2 passes of a client over its records, each once in a pass (shuffled batches)") in said
    assert any("Only the noise of a client's own local steps is counted" in note for note in promised.notes)
    assert any("A person is taken to have one record" in note for note in promised.notes) == (people == 1)


def test_a_delta_that_gives_a_record_away_is_said_to_and_a_large_epsilon_to_promise_little():
    promised = federation(Privacy(unit="record", target_delta=1e-3)).guarantee({"record_noise_multiplier": 0.7})
    assert any("giving away one record whole" in note for note in promised.notes)


def test_every_view_has_the_epsilon_of_the_clients_own_noise_whoever_comes():
    privacy = Privacy(unit="record", target_delta=1e-5)
    rows = [federation(privacy, sample_ratio=ratio, sampling=sampling).columns({"record_noise_multiplier": [1.0]}, 1)
            for ratio, sampling in ((1.0, "fixed"), (0.4, "fixed"), (0.4, "poisson"))]
    assert len({float(row[f"epsilon_{view}"][0]) for row in rows for view in ("server", "secagg", "release")}) == 1


def test_without_noise_nothing_is_promised():
    problem = federation(Privacy(unit="record"), DpSgd(0.0))
    assert problem.columns({}, 1)["epsilon"] == math.inf
    assert problem.guarantee({}) is None
    assert problem.search_guarantee([{}], 1, 5, "listed") is None


def test_where_records_are_not_clipped_a_record_is_hidden_by_noise_on_updates_as_before():
    from fedpareto.federation import Sgd

    problem = federation(Privacy(unit="record"), Sgd(), Randomization(0.5))
    assert problem.guarantee({}).adjacency == "replace"
    assert problem.guarantee({}).counted == ""


def test_a_search_pays_for_its_trials_and_an_adaptive_one_for_the_least_noise_it_could_choose():
    problem = federation(Privacy(unit="record", private_data=True))
    tried = [{"record_noise_multiplier": z} for z in (2.0, 3.0)]
    one, listed, adaptive = (problem.guarantee(tried[0]), *(problem.search_guarantee(tried, 2, 10, how) for how in ("listed", "adaptive")))
    assert listed.rounds == 6 * 2 * 2
    assert adaptive.rounds == 6 * 10 * 2
    assert adaptive.noise_multiplier == pytest.approx(0.7 / FLOAT32)
    assert one.epsilon < listed.epsilon < adaptive.epsilon
    assert "It counts 2 trials × 2 trainings × 6 rounds" in listed.notes[0]
    long = federation(Privacy(unit="record"), DpSgd(2.0), rounds=6 * 2 * 2)
    assert listed.epsilon == pytest.approx(long.guarantee({}).epsilon, rel=1e-6)


@pytest.mark.parametrize(("local", "measure", "message"), [
    (DpSgd(Float("record_noise_multiplier", 0.0, 2.0)), "epsilon", "local.record_noise_multiplier: must add noise where ε is asked for"),
    (DpSgd(0.0), "epsilon_record", "local.record_noise_multiplier: must add noise where ε is asked for"),
])
def test_an_epsilon_without_noise_is_refused(local, measure, message):
    with pytest.raises(SettingError, match=message):
        federation(Privacy(unit="record"), local, objectives=(Objective(measure, reference=9.0),))


def test_a_plan_prices_what_a_study_states():
    (row,) = plan(3.0, 1e-5, 5, unit="record", records=287, batch_size=16, local_steps=4, rounds=6)
    problem = federation(Privacy(unit="record", target_delta=1e-5), DpSgd(row.noise_multiplier))
    assert problem.columns({}, 1)["epsilon"][0] == row.epsilon <= 3.0
