"""Plan privacy before any training: which noise, cohort and rounds hold a promise.

Letters: s is the noise each client adds, m the cohort of a round, T the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedpareto.contract import Round, Seen
from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import Privacy, epsilon, noise_for, terms
from fedpareto.privacy.loss import release_epsilon, release_multiplier
from fedpareto.privacy.statement import rounded_up

ROUNDS = (10, 30, 100, 300, 1000)
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
MOST_ROUNDS = 100_000

Numbers = int | Sequence[int]
Price = Callable[[float, int, int], float]  # ε of (s, m, T)
LeastNoise = Callable[[int, int], float]  # the least s that holds the target, of (m, T)


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
    cohort: int
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
    records: int | None = None,
    batch_size: int | None = None,
    local_steps: int | None = None,
) -> list[Planned]:
    """Return the choices that hold ε, solving for what is left free: noise, rounds or cohort.

    With all of them given each combination is priced, also above the target. Noise given may be the
    multiplier or sigma. unit "record" with records, batch_size and local_steps plans DP-SGD inside
    each silo: noise on every local step hides one record, whoever sees the uploads.
    """
    clip = 1.0 if clipping_norm is None else clipping_norm
    _check(target_epsilon, target_delta, clients, clip, noise_multiplier, sigma)
    in_silos = (records, batch_size, local_steps) != (None, None, None)
    delta = Privacy(target_delta=target_delta).delta(clients * (records or 1))
    privacy = Privacy(view, delta, target_epsilon, unit, adjacency, dropouts, colluders)
    cohorts = _cohorts(clients, dropouts + colluders, cohort)
    if in_silos:
        view = "server"
        cohorts = [clients] if cohort is None else cohorts
        price, least = _in_silos(privacy, clip, records, batch_size, local_steps)
    else:
        price, least = _over_clients(privacy, clients, clip, sampling)

    def spread(m: int) -> float:  # how many times the noise of one client the noise on the sum is
        return 1.0 if in_silos else math.sqrt(m)

    def choice(s: float, m: int, T: int) -> Planned:
        return Planned(s * spread(m) / clip, s, clip, m, T, price(s, m, T), delta, view)

    def noise(m: int) -> float | None:
        if noise_multiplier is None:
            return sigma
        return noise_multiplier * clip / spread(m)

    found = list(_choices(choice, noise, least, cohorts, _rounds(rounds), target_epsilon))
    all_given = cohort is not None and rounds is not None and noise(1) is not None
    return found if all_given else _holding(found, target_epsilon)


def _check(
    target_epsilon: float,
    target_delta: float | None,
    clients: int,
    clip: float,
    multiplier: float | None,
    sigma: float | None,
) -> None:
    """Refuse numbers that no plan can be made with."""
    silent = " Without noise nothing holds: leave it out to have it chosen."
    for name, value, advice in (
        ("target_epsilon", target_epsilon, ""),
        ("clients", clients, ""),
        ("clipping_norm", clip, ""),
        ("noise_multiplier", multiplier, silent),
        ("sigma", sigma, silent),
    ):
        if value is not None and not 0 < value < math.inf:
            raise SettingError(f"{name}: must be above 0 and finite, found {value!r}.{advice}")
    if multiplier is not None and sigma is not None:
        raise SettingError(
            "sigma: must not be given beside noise_multiplier, which it follows from. Give one."
        )
    if target_delta is not None and not 0 < target_delta < 1:
        raise SettingError(
            f"target_delta: must lie between 0 and 1, both excluded, found {target_delta!r}. "
            "1e-5 is usual."
        )


def _choices(
    choice: Callable[[float, int, int], Planned],
    noise: Callable[[int], float | None],
    least: LeastNoise,
    cohorts: Sequence[int],
    rounds: Sequence[int] | None,
    target: float,
) -> Iterator[Planned]:
    """Solve each cohort for what is not given: the noise, else the rounds."""
    for m in cohorts:
        s = noise(m)
        if s is None:
            yield from (choice(least(m, T), m, T) for T in rounds or ROUNDS)
        elif rounds is None:
            yield _longest(lambda T, s=s, m=m: choice(s, m, T), target)  # type: ignore[misc]
        else:
            yield from (choice(s, m, T) for T in rounds)


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
        f"plan: no choice holds ε = {target:g} at δ = {best.delta:g}; "
        f"the least ε found is {rounded_up(best.epsilon)}, "
        f"with cohort {best.cohort} and rounds {best.rounds}. "
        "Raise the noise or the target, or leave one of them free."
    )


def _over_clients(
    privacy: Privacy, clients: int, clip: float, sampling: str
) -> tuple[Price, LeastNoise]:
    """Return the price of noise that each client adds to its update, and the least that holds."""
    target = float(privacy.target_epsilon or 0)

    def seen(s: float, m: int) -> Seen:
        return seen_by(privacy.view, s, clip, m, clients, sampling)

    def price(s: float, m: int, T: int) -> float:
        return float(epsilon(privacy, **seen(s, m).terms(T)))

    def least(m: int, T: int) -> float:
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
    """Return what an onlooker sees of a round in which each client adds so much noise."""
    seen = Round(clients, cohort, sampling, noise=noise, norm=clip).seen(view)
    assert seen is not None  # uniform weights, and noise
    return seen


def _in_silos(
    privacy: Privacy, clip: float, records: int | None, batch: int | None, steps: int | None
) -> tuple[Price, LeastNoise]:
    """Return the price of DP-SGD inside each silo, and the least noise that holds.

    At every local step the silo draws each of its records with probability batch / records, clips
    every record's gradient to the clipping norm, adds noise of z × clipping norm to the sum and
    divides by batch. Then the uploads may be seen by anyone, and a record zeroed out (or replaced,
    by adjacency) stays hidden over all rounds.
    """
    if records is None or batch is None or steps is None or privacy.unit != "record":
        raise SettingError(
            "records: must be given with batch_size, local_steps and unit record, found "
            f"records = {records}, batch_size = {batch}, local_steps = {steps}, "
            f"unit = {privacy.unit}. A record-level plan needs all of them."
        )
    if not (1 <= batch <= records and steps >= 1):
        raise SettingError(
            "batch_size: must lie between 1 and records, and local_steps be at least 1, found "
            f"batch_size = {batch}, records = {records}, local_steps = {steps}."
        )
    target = float(privacy.target_epsilon or 0)
    ratio = batch / records
    delta = privacy.delta(1)
    pair = "poisson" if privacy.adjacency == "zero_out" else "poisson_replace"

    def price(s: float, m: int, T: int) -> float:
        return float(release_epsilon(s / clip, ratio, T * steps, delta, pair))

    def least(m: int, T: int) -> float:
        s = clip * release_multiplier(target, ratio, T * steps, delta, pair)
        while price(s, m, T) > target:  # multiplying may have rounded it down
            s *= 1 + 1e-9
        return s

    return price, least


def _cohorts(clients: int, lost: int, given: Numbers | None) -> list[int]:
    """Return the cohorts to try: those given, or some shares of the clients."""
    if given is None:
        tried = (max(lost + 1, round(share * clients)) for share in SHARES)
        return sorted({min(clients, m) for m in tried})
    cohorts = [given] if isinstance(given, int | float) else list(given)
    for m in cohorts:
        if not 1 <= m <= clients:
            raise SettingError(f"cohort: must lie between 1 and the {clients} clients, found {m}.")
    return cohorts


def _rounds(given: Numbers | None) -> list[int] | None:
    """Return the rounds given, as a list; None where they are left free."""
    if given is None:
        return None
    rounds = [given] if isinstance(given, int | float) else list(given)
    for T in rounds:
        if not (1 <= T < math.inf and int(T) == T):
            raise SettingError(f"rounds: must be whole and at least 1, found {T}.")
    return [int(T) for T in rounds]
