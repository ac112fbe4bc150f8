"""The ε of a ledger: the plan's where all went as planned, larger where not, never below the truth.

The truth is computed by hand: what an onlooker saw is a linear map of the uploads and their noise, and one client moves it by a vector.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from privacy.bounds import lower_epsilon
from scipy.optimize import brentq
from scipy.stats import norm

from fedpareto import Data, DpSgd, Federation, Lr, Randomization, Training
from fedpareto.contract import Round
from fedpareto.deploy import rows
from fedpareto.deploy.pricing import planned, price, terms_of
from fedpareto.federation.columns import contract_of, rounds_of
from fedpareto.federation.promises import promise
from fedpareto.privacy import Privacy

VIEWS = ("server", "secagg", "release")


def history_of(held, attempts, side="server", views=()):
    """Return a history as a ledger would read it, from (round, asked, answered or None, noise, more) of each attempt."""
    header = {"kind": "header", "version": 1, "side": side, "client": None, "deployment": "0" * 64, "terms": held,
              "planned": planned(held, views), "time": ""}
    history = rows.begun(header)
    for t, asked, answered, noise, more in attempts:
        attempt = 1 + len(history.attempts_of(t))
        both = {"kind": "round", "round": t, "attempt": attempt, "norm": held["norm"], "time": ""}
        history = rows.followed(history, {**both, "state": "began", "asked": list(asked)})
        if answered is not None:
            end = {"divisor": held["cohort"] if held["sampling"] == "poisson" else float(len(answered)), "again": [],
                   "record_noise": None, "server_noise": 0.0}
            history = rows.followed(history, {**both, **end, **more, "state": "ended", "answered": list(answered), "noise": noise})
    return history


def share(contract, asked):
    """Return each client's noise where so many are asked."""
    return contract.noise if contract.sampling == "fixed" else contract.noise * math.sqrt(contract.cohort / max(asked, 1))


def as_planned(contract, rounds, seed=0):
    """Return attempts in which all went as planned."""
    rng = np.random.default_rng(seed)
    found = []
    for t in range(rounds):
        size = int(contract.cohort) if contract.sampling == "fixed" else rng.binomial(contract.clients, contract.cohort / contract.clients)
        asked = rng.permutation(contract.clients)[:size].tolist()
        more = {} if asked else {"server_noise": contract.noise * math.sqrt(contract.cohort)}
        found.append((t, asked, asked, [share(contract, size)] * size, more))
    return found


def federation(sampling, sample_ratio, view="secagg", records=False, **privacy):
    training = Training(0.1, rounds=7, local_steps=2, sampling=sampling, sample_ratio=sample_ratio)
    local = DpSgd(record_noise_multiplier=1.3, record_clipping_norm=0.5) if records else None
    mechanism = Randomization(sigma=0.7, clipping_norm=2.0)
    return Federation(Data("digits", 12), Lr(), training, mechanism, (), privacy=Privacy(view, **privacy),
                      **({"local": local} if local else {}))


def terms_for(problem):
    columns = rounds_of(problem, {}, 1)
    return terms_of(contract_of(problem, columns), problem.privacy, int(columns["rounds"][0]), float(columns["delta"][0]))


PRIVACY = [{}, {"dropouts": 1}, {"colluders": 1}, {"adjacency": "replace"}, {"unit": "record"}]


def promised():
    """Yield sampling, what is promised and the view; those that an accountant needs seconds for are slow."""
    for sampling, privacy, view in itertools.product(["fixed", "poisson"], PRIVACY, VIEWS):
        long = sampling == "poisson" and view == "release" and len({"adjacency", "unit"} & set(privacy))
        yield pytest.param(sampling, privacy, view, marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize(("sampling", "privacy", "view"), list(promised()))
def test_as_planned_the_ledger_states_what_the_study_promised_to_the_last_digit(sampling, privacy, view):
    problem = federation(sampling, 1 / 3, view, **privacy)
    held = terms_for(problem)
    stated = promise(problem, {}, view)
    contract = Round(12, 4.0, sampling, noise=0.7, norm=2.0)
    found = price(history_of(held, as_planned(contract, 7, seed=3), views=[view]), [view])[view]
    assert found["epsilon"] == found["planned"] == stated.epsilon
    if (sampling, view) == ("poisson", "release"):  # seconds more
        return
    stopped = price(history_of(held, as_planned(contract, 4)), [view])[view]
    longer = price(history_of(held, as_planned(contract, 8)), [view])[view]
    assert stopped["epsilon"] < stated.epsilon < longer["epsilon"]


def test_as_planned_the_ledger_states_what_the_study_promised_its_records():
    problem = federation("fixed", 1 / 3, records=True, unit="record")
    held = terms_for(problem)
    stated = promise(problem, {})
    contract = Round(12, 4.0, "fixed", noise=0.7, norm=2.0)
    attempts = [(t, a, b, n, {"record_noise": [0.65] * 4}) for t, a, b, n, _ in as_planned(contract, 7)]
    for side, views in (("server", VIEWS[1:2]), ("client", VIEWS[1:2])):
        assert price(history_of(held, attempts, side, views), views) == {"secagg": {"epsilon": stated.epsilon, "planned": stated.epsilon}}
    t, asked, answered, noise, _ = attempts[0]
    less = [(t, asked, answered, noise, {"record_noise": [0.65, 0.65, 0.6, 0.65]}), *attempts[1:]]
    twice = [(t, asked, None, None, {}), *attempts]
    for worse in (less, twice):
        assert price(history_of(held, worse), ["secagg"])["secagg"]["epsilon"] > stated.epsilon


def test_without_noise_or_a_bound_there_is_no_price():
    for contract in (Round(5, 2.0), Round(5, 2.0, weighting="size", noise=1.0, norm=1.0), Round(5, 2.0, noise=0.0, norm=1.0)):
        held = terms_of(contract, Privacy(), 3, 1e-5)
        found = price(history_of(held, [(0, [1, 2], [1, 2], None, {})]))
        assert found["secagg"] == {"epsilon": None, "planned": None}


FIXED = Round(6, 3.0, "fixed", noise=1.1, norm=1.0)
POISSON = Round(6, 3.0, "poisson", noise=1.1, norm=1.0)


def priced(contract, attempts, view, **privacy):
    return price(history_of(terms_of(contract, Privacy(**privacy), 4, 1e-5), attempts), [view])[view]["epsilon"]


@pytest.mark.parametrize("contract", [FIXED, POISSON], ids=["fixed", "poisson"])
@pytest.mark.parametrize(
    ("what", "views"),
    [("dropout", ("secagg", "release")), ("noise", VIEWS), ("norm", VIEWS), ("fresh", VIEWS), ("unended", VIEWS), ("ended twice", VIEWS),
     ("no noise at all", VIEWS)],
)
def test_what_did_not_go_as_planned_makes_epsilon_larger(contract, what, views):
    plan = as_planned(contract, 4, seed=1)
    t, asked, answered, noise, more = next(one for one in plan if len(one[1]) > 1)
    rest = [one for one in plan if one[0] != t]
    low = share(contract, 6) * 0.9
    other = {
        "dropout": [(t, asked, answered[1:], noise[1:], more)],
        "noise": [(t, asked, answered, [low] * len(asked), more)],
        "norm": [(t, asked, answered, [low] * len(asked), {**more, "norm": 1.3})],
        "fresh": [(t, asked, None, None, {}), (t, asked, answered, noise, more)],
        "unended": [(t, asked, answered, noise, more), (77, asked, None, None, {})],
        "ended twice": [(t, asked, answered, noise, more), (t, asked, answered, noise, more)],
        "no noise at all": [(t, asked, answered, [0.0] * len(asked), more)],
    }[what]
    for view in views:
        found = priced(contract, [*rest, *other], view)
        assert found is None or found > priced(contract, plan, view)


@pytest.mark.parametrize("contract", [FIXED, POISSON], ids=["fixed", "poisson"])
def test_a_restarted_server_that_gets_the_same_bytes_again_spends_nothing(contract):
    plan = as_planned(contract, 4, seed=1)
    t, asked, answered, noise, more = next(one for one in plan if len(one[1]) > 1)
    killed = [*[one for one in plan if one[0] != t], (t, asked, None, None, {}), (t, asked, answered, noise, {**more, "again": answered})]
    for view in VIEWS:
        assert priced(contract, killed, view) == priced(contract, plan, view)


def test_a_larger_cohort_or_one_that_tells_who_came_is_not_hidden_by_chance():
    plan = as_planned(FIXED, 4)
    more = [(0, [0, 1, 2, 3], [0, 1, 2, 3], [1.1] * 4, {}), *plan[1:]]
    assert priced(FIXED, more, "release") > priced(FIXED, plan, "release")
    plan = as_planned(POISSON, 4, seed=2)
    for odd in ({"divisor": 5.0}, {"server_noise": 0.5}, {"noise": [2.5] * len(plan[0][1])}):
        t, asked, answered, noise, rest = plan[0]
        told = [(t, asked, answered, odd.get("noise", noise), {**rest, **{k: v for k, v in odd.items() if k != "noise"}}), *plan[1:]]
        assert priced(POISSON, told, "release") > priced(POISSON, plan, "release")


def test_a_chance_that_the_numbers_asked_belie_is_not_counted():
    contract = Round(50, 5.0, "poisson", noise=1.1, norm=1.0)
    everyone = [(t, list(range(50)), list(range(50)), [share(contract, 50)] * 50, {}) for t in range(3)]
    usual = [(t, list(range(5)), list(range(5)), [1.1] * 5, {}) for t in range(3)]
    assert priced(contract, everyone, "release") == pytest.approx(priced(contract, usual, "secagg"), rel=1e-6)
    assert priced(contract, usual, "release") < priced(contract, usual, "secagg")


# What follows is the truth, computed in another way.


@dataclass(frozen=True)
class Sent:
    """An upload that was really sent: by whom, in which round, with how much noise."""

    client: int
    round: int
    noise: float


def gaussian(mu):
    """Return ε at δ = 1e-5 of a Gaussian shifted by μ deviations, by its definition."""
    if mu == 0:
        return 0.0

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e + norm.logcdf(-mu / 2 - e / mu)) - 1e-5

    return 0.0 if excess(0.0) <= 0 else brentq(excess, 0.0, mu * mu / 2 + 10 * mu + 1)


def true_epsilon(seen, uploads, clients, noise_of_server):
    """Return the largest ε over clients: seen [rows] lists which uploads are in each number that an onlooker saw.

    uploads moved in one round by one client may point the same way or against one another, whichever is worse.
    """
    if not seen:
        return 0.0
    A = np.array([[float(i in row) for i in range(len(uploads))] for row in seen])
    covariance = A @ np.diag([u.noise**2 for u in uploads]) @ A.T + np.diag(np.square(noise_of_server))
    inverse = np.linalg.pinv(covariance, hermitian=True)
    worst = 0.0
    for k in clients:
        mine = [i for i, u in enumerate(uploads) if u.client == k]
        for signs in itertools.product((1.0, -1.0), repeat=max(len(mine) - 1, 0)):
            shift = np.zeros(len(uploads))
            shift[mine] = (1.0, *signs)[: len(mine)]
            worst = max(worst, float((A @ shift) @ inverse @ (A @ shift)))
    return gaussian(math.sqrt(worst))


@st.composite
def worlds(draw):
    """Draw what was on record, and what was really sent and summed."""
    sampling = draw(st.sampled_from(["fixed", "poisson"]))
    clients = draw(st.integers(2, 4))
    m = draw(st.integers(1, clients))
    contract = Round(clients, float(m), sampling, noise=draw(st.sampled_from([0.6, 1.0, 2.5])), norm=1.0, noise_last=draw(st.booleans()))
    attempts, uploads, sums = [], [], []
    for t in range(draw(st.integers(1, 3))):
        held: dict[int, int] = {}  # the upload that a client keeps of this round
        for _ in range(draw(st.integers(1, 3))):
            asked = sorted(draw(st.sets(st.integers(0, clients - 1), max_size=clients)))
            ended = draw(st.booleans())
            again, noise, answered = [], [], []
            for k in asked:
                if ended and not draw(st.sampled_from([True, True, False])):
                    continue
                resend = ended and k in held and draw(st.booleans())
                s = share(contract, len(asked)) if not ended else draw(st.sampled_from([0.5, 1.0, 1.0, 1.3])) * share(contract, len(asked))
                if resend:
                    again.append(k)
                    s = uploads[held[k]].noise
                else:
                    uploads.append(Sent(k, t, s))
                    held[k] = len(uploads) - 1
                answered.append(k)
                noise.append(s)
            server = draw(st.sampled_from([0.0, 0.0, 0.4])) if ended else 0.0
            attempts.append((t, asked, answered if ended else None, noise if ended else None, {"again": again, "server_noise": server}))
            if answered:
                sums.append(({held[k] for k in answered}, server))
    return contract, attempts, uploads, sums


@settings(max_examples=300)
@given(worlds())
def test_no_price_is_below_the_truth_where_it_is_known_who_took_part(world):
    contract, attempts, uploads, sums = world
    assume(len(uploads) <= 12)
    held = terms_of(contract, Privacy(), 3, 1e-5)
    found = price(history_of(held, attempts), VIEWS[:2])
    least = price(history_of(held, as_planned(contract, len({t for t, *_ in attempts}))), VIEWS[:2])
    everyone = range(contract.clients)
    singles = true_epsilon([{i} for i in range(len(uploads))], uploads, everyone, [0.0] * len(uploads))
    added = true_epsilon([row for row, _ in sums], uploads, everyone, [s for _, s in sums])
    for view, truth in (("server", singles), ("secagg", added)):
        assert found[view]["epsilon"] >= truth * (1 - 1e-7), view
        assert found[view]["epsilon"] >= least[view]["epsilon"]


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 1.0, 0.7])), min_size=1, max_size=6), st.sampled_from(["fixed", "poisson"]))
def test_no_price_is_below_a_lower_bound_where_chance_hides_who_took_part(rounds, sampling):
    """The bound counts the rounds with the least noise alone, each as if it had the most noise of them, and their chance."""
    contract = Round(12, 4.0, sampling, noise=0.6, norm=1.0)
    attempts, real = [], []
    for t, (lost, less) in enumerate(rounds):
        asked = list(range(4))
        sigma = [0.6 * less] * (4 - lost)
        attempts.append((t, asked, asked[lost:], sigma, {}))
        real.append(0.6 * less * math.sqrt(4 - lost))
    found = price(history_of(terms_of(contract, Privacy(), len(rounds), 1e-5), attempts), ["release"])["release"]["epsilon"]
    pair = "fixed" if sampling == "fixed" else "poisson"
    for count, z in enumerate(sorted(real), 1):
        assert found >= lower_epsilon(z, 1 / 3, count, 1e-5, pair, 0.05)


def test_the_views_of_a_clients_own_ledger():
    """It tells what this client sent; what others added to a sum it does not know."""
    held = terms_of(FIXED, Privacy(), 4, 1e-5)
    mine = [(t, [2], [2], [1.1], {"divisor": None}) for t in (0, 3)]
    found = price(history_of(held, mine, "client"))
    assert list(found) == ["server"]
    assert found["server"]["epsilon"] == priced(FIXED, as_planned(FIXED, 2), "server")


def test_nothing_begun_is_nothing_spent():
    held = terms_of(FIXED, Privacy(), 4, 1e-5)
    assert price(history_of(held, []))["secagg"]["epsilon"] == 0.0


def test_the_cost_of_records_is_counted_in_asks_and_not_in_answers():
    problem = federation("fixed", 1 / 3, records=True, unit="record")
    held = terms_for(problem)
    asked = [(t, [1, 2], [1], [0.7], {"record_noise": [0.65]}) for t in range(3)]
    answered = [(t, [1], [1], [0.7], {}) for t in range(3)]
    assert price(history_of(held, asked), ["server"]) == price(history_of(held, answered), ["server"])
