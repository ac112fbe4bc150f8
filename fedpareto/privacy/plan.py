"""Plan privacy before any training: which noise, cohort and rounds hold a promise.

Letters: s is the noise each client adds, m the cohort of a round, T the rounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto.contract import FLOAT32, Records, Round, Seen, expected_cohorts
from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import Privacy, epsilon, noise_for, terms
from fedpareto.privacy.cohorts import ends
from fedpareto.privacy.records import pair_of, record_epsilon, record_multiplier
from fedpareto.privacy.statement import delta_text, rounded_up
from fedpareto.problem import tell
from fedpareto.settings import Rule, checked

ROUNDS = (10, 30, 100, 300, 1000)
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
MOST_ROUNDS = 100_000

Numbers = float | Sequence[float]
Price = Callable[[float, float, int], float]  # ε of (s, m, T)
LeastNoise = Callable[[float, int], float]  # the least s that holds the target, of (m, T)


@dataclass(frozen=True)
class Planned:
    """One way to train, with the ε it costs.

    noise_multiplier is the standard deviation of the noise on the sum of a round, over the clipping
    norm; sigma is the noise each client adds, s = z c / √m. Of a record-level plan both speak of a
    silo's own mini-batch sum, and s = z c.
    """

    noise_multiplier: float
    sigma: float
    clipping_norm: float
    cohort: float  # whole, unless it is what Poisson sampling expects
    rounds: int
    epsilon: float
    delta: float
    view: str


def plan(
    target_epsilon: float,
    target_delta: float | None,
    clients: int,
    *,
    view: str = "server",
    unit: str = "client",
    sampling: str = "fixed",
    adjacency: str = "zero_out",
    dropouts: int = 0,
    colluders: int = 0,
    noise_multiplier: float | None = None,
    sigma: float | None = None,
    clipping_norm: float | None = None,
    cohort: Numbers | None = None,
    rounds: Numbers | None = None,
    records: int | Sequence[int] | None = None,
    batch_size: int | None = None,
    local_steps: int | None = None,
) -> list[Planned]:
    """Return the choices that hold ε, solving for what is left free: noise, rounds or cohort.

    With all of them given each combination is priced, also above the target. Noise given may be the
    multiplier or sigma. unit "record" with records, batch_size and local_steps plans DP-SGD inside
    each silo: noise on every local step hides one record, whoever sees the uploads. records is a
    number for all silos, or one for each: then the promise is that of the worst off.
    """
    target_epsilon = checked("target_epsilon", target_epsilon, float, Rule(above=0))
    clients = checked("clients", clients, int, Rule(at_least=1))
    given = 1.0 if clipping_norm is None else clipping_norm
    clip = checked("clipping_norm", given, float, Rule(above=0))
    silo = _silo(unit, clients, records, batch_size, local_steps)
    delta = Privacy(target_delta=target_delta).delta(sum(silo[0]) if silo else clients)
    privacy = Privacy(view, delta, target_epsilon, unit, adjacency, dropouts, colluders)
    cohorts = _cohorts(clients, privacy.lost, cohort, sampling)
    if silo:
        cohorts = [clients] if cohort is None else cohorts
        price, least = _in_silos(privacy, clip, *silo)
    else:
        price, least = _over_clients(privacy, clients, clip, sampling)
    way = _Way(
        price=price,
        least=least,
        clip=clip,
        **_given_noise(noise_multiplier, sigma),
        target=target_epsilon,
        delta=delta,
        view="server" if silo else view,
        alone=silo is not None,
    )
    lengths = None if rounds is None else _rounds(rounds)
    if cohort is None and silo is None and way.noise(1) is not None:
        fewest = 1 if view == "server" else privacy.lost + 1
        found = _of_any_cohort(way, cohorts, lengths, range(fewest, clients + 1))
        return _holding(found, target_epsilon)
    found = list(_choices(way, cohorts, lengths))
    all_given = cohort is not None and rounds is not None and way.noise(1) is not None
    return found if all_given else _holding(found, target_epsilon)


@dataclass(frozen=True)
class _Way:
    """How noise is added and priced: what a choice of cohort and rounds becomes a row by."""

    price: Price
    least: LeastNoise
    clip: float
    multiplier: float | None
    sigma: float | None
    target: float
    delta: float
    view: str
    alone: bool  # each silo hides its own records: the cohort adds nothing

    def spread(self, m: float) -> float:
        """Return how many times the noise of one client the noise on the sum is."""
        return 1.0 if self.alone else math.sqrt(m)

    def noise(self, m: float) -> float | None:
        """Return the noise of each client that was given; None where it is left free."""
        if self.multiplier is None:
            return self.sigma
        return self.multiplier * self.clip / self.spread(m)

    def row(self, m: float, T: int) -> Planned:
        """Return a cohort and rounds as a choice; noise not given is the least that holds."""
        s = self.noise(m)
        if s is None:
            s = self.least(m, T)
        multiplier = s * self.spread(m) / self.clip
        epsilon = self.price(s, m, T)
        return Planned(multiplier, s, self.clip, m, T, epsilon, self.delta, self.view)


def _given_noise(multiplier: float | None, sigma: float | None) -> dict[str, float | None]:
    """Return the noise given, as numbers above 0; None for what is left out."""
    found: dict[str, float | None] = {"multiplier": None, "sigma": None}
    for key, name, value in (
        ("multiplier", "noise_multiplier", multiplier),
        ("sigma", "sigma", sigma),
    ):
        if value is None:
            continue
        try:
            found[key] = checked(name, value, float, Rule(above=0))
        except SettingError as error:
            raise SettingError(
                f"{error} Without noise nothing holds: leave it out to have it chosen."
            ) from None
    if None not in found.values():
        raise SettingError(
            "sigma: must not be given beside noise_multiplier, which it follows from. Give one."
        )
    return found


def _of_any_cohort(
    way: _Way, shares: Sequence[float], rounds: Sequence[int] | None, every: range
) -> list[Planned]:
    """Return the shares of the clients, and the smallest and the largest cohort that hold ε.

    With rounds left free the shares alone, unless none of them holds a single round.
    """
    if rounds is None:
        found = list(_choices(way, shares, None))
        if any(c.epsilon <= way.target for c in found):
            return found
        return list(_choices(way, sorted(_ends(way, 1, every)), None))
    pairs = {(m, T) for T in rounds for m in (*shares, *_ends(way, T, every))}
    return [way.row(m, T) for m, T in sorted(pairs)]


def _ends(way: _Way, T: int, every: range) -> set[int]:
    """Return the smallest and the largest cohort that hold ε over T rounds."""

    @functools.cache
    def price(m: int) -> float:
        return way.row(m, T).epsilon

    return set(ends(price, every[0], every[-1], way.target))


def _choices(
    way: _Way, cohorts: Sequence[float], rounds: Sequence[int] | None
) -> Iterator[Planned]:
    """Solve each cohort for what is not given: the noise, else the rounds."""
    for i, m in enumerate(cohorts):
        if rounds is None and way.noise(m) is not None:
            yield _longest(lambda T, m=m: way.row(m, T), way.target)  # type: ignore[misc]
            tell((i + 1) / len(cohorts))
        else:
            lengths = rounds or ROUNDS
            for j, T in enumerate(lengths):
                yield way.row(m, T)
                tell((i + (j + 1) / len(lengths)) / len(cohorts))


def _longest(choice: Callable[[int], Planned], target: float) -> Planned:
    """Return the choice with the most rounds that holds ε, or that of one round."""
    high = 1
    while high <= MOST_ROUNDS and choice(high).epsilon <= target:
        high *= 2
    low = max(high // 2, 1)
    high = min(high, MOST_ROUNDS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if choice(middle).epsilon <= target:
            low = middle
        else:
            high = middle
    return choice(low)


def _holding(found: list[Planned], target: float) -> list[Planned]:
    """Return the choices that hold ε, or say how near they come."""
    holds = [c for c in found if c.epsilon <= target]
    if holds:
        return holds
    best = min(found, key=lambda c: c.epsilon)
    raise SettingError(
        f"plan: no choice holds ε = {target:g} at δ = {delta_text(best.delta)}; "
        f"the least ε found is {rounded_up(best.epsilon)}, "
        f"with cohort {best.cohort} and rounds {best.rounds}. "
        "Raise the noise or the target, or leave one of them free."
    )


def _over_clients(
    privacy: Privacy, clients: int, clip: float, sampling: str
) -> tuple[Price, LeastNoise]:
    """Return the price of noise that each client adds to its update, and the least that holds."""
    target = float(privacy.target_epsilon or 0)

    def seen(s: float, m: float) -> Seen:
        return seen_by(privacy.view, s, clip, m, clients, sampling)

    def price(s: float, m: float, T: int) -> float:
        return float(epsilon(privacy, **seen(s, m).terms(T)))

    def least(m: float, T: int) -> float:
        unit = seen(1.0, m)
        asked = unit.terms(T)
        del asked["noise"]  # what is solved for
        s = noise_for(privacy, target, **asked) / float(unit.noise)
        while price(s, m, T) > target:  # dividing may have rounded it down
            s *= 1 + 1e-15
        return s

    terms(privacy, 1.0, clip, clients, clients, 1, sampling, None)
    return price, least


def seen_by(
    view: str, noise: float, clip: float, cohort: float, clients: int, sampling: str
) -> Seen:
    """Return what an onlooker sees of a round in which each client adds so much noise.

    Its numbers are those of a study with sample_ratio = cohort / clients, to the last digit.
    """
    expected = expected_cohorts(np.array([cohort / clients]), clients, sampling)
    seen = Round(clients, expected, sampling, noise=np.array([noise]), norm=clip).seen(view)
    assert seen is not None  # uniform weights, and noise
    return replace(seen, noise=float(seen.noise[0]), cohort=float(expected[0]))


def _in_silos(
    privacy: Privacy, clip: float, sizes: Sequence[int], batch: int, steps: int
) -> tuple[Price, LeastNoise]:
    """Return the price of DP-SGD inside each silo, and the least noise that holds.

    At every local step the silo draws each of its records with probability batch / records, clips
    every record's gradient to the clipping norm, adds noise of z × clipping norm to the sum and
    divides by batch. Then the uploads may be seen by anyone, and a record zeroed out (or replaced,
    by adjacency) stays hidden over all rounds. In the smallest silo the chance is the largest.
    """
    target = float(privacy.target_epsilon or 0)
    delta = privacy.delta(1)
    pair = pair_of(privacy)

    def price(s: float, m: float, T: int) -> float:
        terms = hidden_by(s / clip, clip, sizes, batch, steps)
        return float(record_epsilon(privacy, terms, np.array([float(T)]), delta)[0])

    def least(m: float, T: int) -> float:
        z = record_multiplier(target, batch / min(sizes), T * steps, delta, pair)
        s = clip * z * FLOAT32
        while price(s, m, T) > target:  # multiplying may have rounded it down
            s *= 1 + 1e-9
        return s

    return price, least


def hidden_by(
    multiplier: float, clip: float, sizes: Sequence[int], batch: int, steps: int
) -> Records:
    """Return how local steps with this noise hide each record of clients with so many each.

    Its numbers are those of a study with these settings, to the last digit.
    """
    norm = np.array([clip])
    held = tuple(sorted(set(sizes)))
    return Records(multiplier * norm, norm, np.array([float(batch)]), held, steps)


def _silo(
    unit: str,
    clients: int,
    records: int | Sequence[int] | None,
    batch: int | None,
    steps: int | None,
) -> tuple[list[int], int, int] | None:
    """Return records of each silo, batch size and steps; None where none of them is given."""
    asked = {"records": records, "batch_size": batch, "local_steps": steps}
    if all(value is None for value in asked.values()):
        return None
    if unit != "record" or None in asked.values():
        found = ", ".join(f"{name} = {value}" for name, value in asked.items())
        raise SettingError(
            "records: must be given with batch_size, local_steps and unit record, found "
            f"{found}, unit = {unit}. A record-level plan needs all of them."
        )
    sizes = sizes_of(clients, records)  # type: ignore[arg-type]
    b = checked("batch_size", batch, int, Rule(at_least=1))
    e = checked("local_steps", steps, int, Rule(at_least=1))
    if b > min(sizes):
        raise SettingError(
            f"batch_size: must be at most the {min(sizes)} records of a silo, found {b}."
        )
    return sizes, b, e


def sizes_of(clients: int, records: int | Sequence[int]) -> list[int]:
    """Return the records of each silo, given one number for all or one for each."""
    if isinstance(records, Sequence) and not isinstance(records, str):
        found = [checked("records", n, int, Rule(at_least=1)) for n in records]
    else:
        found = [checked("records", records, int, Rule(at_least=1))] * clients
    if len(found) != clients:
        raise SettingError(
            f"records: must be one number, or one for each of the {clients} clients, found "
            f"{len(found)}."
        )
    return found


def _cohorts(clients: int, lost: int, given: Numbers | None, sampling: str) -> list[float]:
    """Return the cohorts to try: those given, or some shares of the clients.

    A cohort is whole, unless it is what Poisson sampling expects.
    """
    if given is None:
        tried = (max(lost + 1, round(share * clients)) for share in SHARES)
        return sorted({min(clients, m) for m in tried})
    kind = float if sampling == "poisson" else int
    cohorts = [checked("cohort", m, kind, Rule()) for m in _listed("cohort", given)]
    for m in cohorts:
        if not 1 <= m <= clients:
            raise SettingError(f"cohort: must lie between 1 and the {clients} clients, found {m}.")
    return [int(m) if m == int(m) else m for m in cohorts]


def _rounds(given: Numbers) -> list[int]:
    """Return the rounds given, as a list."""
    return [checked("rounds", T, int, Rule(at_least=1)) for T in _listed("rounds", given)]


def _listed(name: str, given: Numbers) -> list[Any]:
    """Return the numbers given, one or several, as a list."""
    listed = [given] if np.ndim(given) == 0 else list(given)  # type: ignore[arg-type]
    if not listed:
        raise SettingError(f"{name}: must be a number, or several, found none.")
    return listed
