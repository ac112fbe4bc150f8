"""Price what really happened: the ε of a ledger in every view, beside that of the plan.

Rounds that happened are counted, not those planned, and each costs at least what was planned. So ε
is the plan's, to the last digit, where everything went as planned, and larger where it did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from fedpareto.contract import VIEWS, Records, Round
from fedpareto.deploy.happened import Planned, Spent, spent, uploads
from fedpareto.deploy.ledger import read
from fedpareto.deploy.rows import Attempt, History
from fedpareto.errors import FedparetoError, LedgerError, shown
from fedpareto.privacy import Privacy, record_guarantee
from fedpareto.privacy.accounting import Terms, terms
from fedpareto.privacy.gaussian import gaussian_epsilon
from fedpareto.privacy.statement import priced

Prices = dict[str, dict[str, float | None]]
ROUND = ("clients", "cohort", "sampling", "weighting", "noise", "norm", "noise_last", "centred")
PRIVACY = ("unit", "adjacency", "dropouts", "colluders", "records_per_person")
SHARES = (0.5, 0.1, 0.01, 1e-3)  # of δ, tried for the rounds that were not as planned
UNLIKELY = 1e-9  # how rarely so many are asked by chance before the chance is not believed


def terms_of(contract: Round, privacy: Privacy, rounds: int, delta: float) -> dict[str, Any]:
    """Return the terms of one point as a ledger's header and a deployment hold them."""
    held: dict[str, Any] = {name: _plain(getattr(contract, name)) for name in ROUND}
    if contract.records is not None:
        records = {name: _plain(v) for name, v in vars(contract.records).items()}
        times = {name: int(records[name]) for name in ("steps", "epochs")}
        held["records"] = {**records, **times, "sizes": list(contract.records.sizes)}
    else:
        held["records"] = None
    named = {name: getattr(privacy, name) for name in PRIVACY}
    return {**held, **named, "rounds": int(rounds), "delta": float(delta)}


def planned(held: Mapping[str, Any], views: Sequence[str] = VIEWS) -> dict[str, float | None]:
    """Return the ε that terms promise in every view; None where nothing bounds it."""
    contract, privacy = _contract(held)
    rounds = held["rounds"]
    return {view: _as_planned(contract, privacy, view, rounds) for view in views}


def price(ledger: str | Path | History, views: Sequence[str] | None = None) -> Prices:
    """Return the ε of what happened and the plan's, by view; None where nothing bounds it.

    A client's ledger tells what that client sent: the view server, or what hides its records.
    """
    history = ledger if isinstance(ledger, History) else read(ledger)
    views = views_of(history) if views is None else views
    held = history.header["terms"]
    try:
        contract, privacy = _contract(held)
        found = {v: _happened(history, contract, privacy, v) for v in views}
    except (ArithmeticError, ValueError, FedparetoError) as error:
        raise LedgerError(
            f"terms: must be those that an export wrote, found {shown(error)}. Name the file that "
            "the deployment wrote."
        ) from None
    plan = history.header["planned"]
    return {view: {"epsilon": e, "planned": plan.get(view)} for view, e in found.items()}


def views_of(history: History) -> tuple[str, ...]:
    """Return the views that a ledger can price: a client does not know what others added."""
    held = history.header["terms"]
    alone = history.header["side"] == "client" and not _hides_records(held)
    return VIEWS[:1] if alone else VIEWS


def _hides_records(held: Mapping[str, Any]) -> bool:
    """Say whether the promise is about records that local steps hide."""
    return held["unit"] == "record" and held["records"] is not None


def _contract(held: Mapping[str, Any]) -> tuple[Round, Privacy]:
    """Return the terms of a round and what is promised."""
    records = held["records"]
    if records is not None:
        records = Records(**{**records, "sizes": tuple(records["sizes"])})
    contract = Round(**{name: held[name] for name in ROUND}, records=records)
    privacy = Privacy(target_delta=held["delta"], **{name: held[name] for name in PRIVACY})
    return contract, privacy


def _as_planned(contract: Round, privacy: Privacy, view: str, rounds: int) -> float | None:
    """Return ε of so many rounds as planned."""
    if privacy.unit == "record" and contract.records is not None:
        return _of_records(contract, privacy, contract.records, rounds)
    given = _terms(contract, privacy, view, rounds)
    return None if given is None else _finite(priced(given, float(given.delta))[0])


def _terms(contract: Round, privacy: Privacy, view: str, rounds: int) -> Terms | None:
    """Return what accountants need of so many rounds as planned; None where nothing bounds ε."""
    seen = contract.seen(view, privacy.replaces_clients)
    if seen is None or not contract.noise:
        return None
    return terms(privacy, **seen.terms(rounds))


def _happened(history: History, contract: Round, privacy: Privacy, view: str) -> float | None:
    """Return ε of what a ledger has on record."""
    if not history.attempts:
        return 0.0
    if privacy.unit == "record" and contract.records is not None:
        records, rounds = _records_used(contract, privacy, history.attempts)
        return _of_records(contract, privacy, records, rounds)
    given = _terms(contract, privacy, view, 1)
    if given is None:
        return None
    plan = _plan(history, contract, privacy, view, float(given.z))
    found = spent(plan, history.attempts)
    if view != "release":  # who took part is known, and nothing is gained by its being secret
        found = [replace(one, secret=True) for one in found]
    elif not _drawn_as_planned(contract, history.attempts):
        found = [replace(one, secret=False) for one in found]
    return _finite(_priced(given, found))


def judged(history: History) -> Planned:
    """Return what every round was planned to be, to tell what was not."""
    contract, privacy = _contract(history.header["terms"])
    return _plan(history, contract, privacy, "server", 0.0)


def _plan(history: History, contract: Round, privacy: Privacy, view: str, z: float) -> Planned:
    """Return what every round of a view was planned to be."""
    return Planned(
        contract,
        z,
        view == "server" or not contract.noise_last,
        privacy.dropouts,
        privacy.colluders,
        history.header["side"] == "server",
    )


def _priced(given: Terms, rounds: Sequence[Spent]) -> float:
    """Return ε of rounds, each at its cost.

    Chance hides a client in rounds that went as planned alone: others count as if it had been in
    every one, with a share of δ of their own.
    """
    delta = float(given.delta)
    clean = sum(one.secret and one.cost == 1 for one in rounds)
    least = priced(_lasting(given, len(rounds)), delta)[0]
    if clean == len(rounds):
        return least
    total = math.fsum(one.cost for one in rounds) * (1 + 1e-15 * len(rounds))
    found = [_unsampled(given, total, delta)]
    if given.view == "release" and clean:
        rest = (total - clean) * (1 + 1e-15 * len(rounds))
        found += [
            priced(_lasting(given, clean), (1 - share) * delta)[0]
            + _unsampled(given, rest, share * delta)
            for share in SHARES
        ]
    return max(least, min(found))


def _lasting(given: Terms, rounds: int) -> Terms:
    return replace(given, rounds=np.asarray(float(rounds)))


def _unsampled(given: Terms, total: float, delta: float) -> float:
    """Return ε of rounds that cost so much together, if chance hides nobody."""
    if math.isinf(total):
        return math.inf
    z = float(given.z) / given.sensitivity / math.sqrt(total)
    return float(gaussian_epsilon(z, delta))


def _drawn_as_planned(contract: Round, attempts: Sequence[Attempt]) -> bool:
    """Say whether as many were asked as a chance of each client's own gives (Poisson sampling)."""
    first = [len(one.asked) for one in attempts if one.attempt == 1]
    if contract.sampling == "fixed" or not first:
        return True
    chance = contract.cohort / contract.clients
    return bool(
        scipy.stats.binom.sf(sum(first) - 1, len(first) * contract.clients, chance) >= UNLIKELY
    )


def _records_used(
    contract: Round, privacy: Privacy, attempts: Sequence[Attempt]
) -> tuple[Records, int]:
    """Return the least noise that hid records, and how many rounds of one client there were."""
    records = contract.records
    assert records is not None
    plain = replace(contract, noise=1.0, norm=1.0)  # no noise of uploads is counted here
    plan = Planned(plain, 0.0, True, privacy.dropouts, privacy.colluders)
    times = []
    for t in {one.round for one in attempts}:
        of = [one for one in attempts if one.round == t]
        times.append(max([1, *(len(each) for each in uploads(plan, of).values())]))
    added = [s for one in attempts for s in one.record_noise or ()]
    return replace(records, noise=min([records.noise, *added])), sum(times)


def _of_records(contract: Round, privacy: Privacy, records: Records, rounds: int) -> float | None:
    """Return ε of one record, or of one person's, over so many rounds of a client."""
    if not records.noise > 0:
        return None
    found = record_guarantee(
        privacy,
        records,
        rounds=rounds,
        clients=contract.clients,
        cohort=contract.cohort,
        sampling=contract.sampling,
        people=1,
    )
    return _finite(found.epsilon)


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _plain(value: Any) -> Any:
    """Return a number or array of one as JSON has it."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).reshape(-1)[0].item()
    return value
