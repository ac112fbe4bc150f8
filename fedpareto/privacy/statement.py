"""A promise of (ε, δ) in words: what it rests on, and what a reader should know about it."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from importlib.metadata import version

import numpy as np

from fedpareto.privacy.accounting import Privacy, Terms, terms
from fedpareto.privacy.gaussian import gaussian_epsilon
from fedpareto.privacy.loss import PRECISE, release_epsilon
from fedpareto.privacy.shown import shown_epsilon

SEES = {
    "server": "whoever sees each client's upload",
    "secagg": "whoever sees the sums of uploads and knows who took part",
    "release": "whoever sees the released models alone, while who took part stays secret",
}
OTHERS = {
    ("client", "zero_out"): "whether or not one client's update is left out",
    ("client", "replace"): "whether or not one client's data is replaced by any other",
    ("record", "zero_out"): "whether or not one record of one client is left out",
    ("record", "replace"): "whether or not one record of one client is replaced by any other",
}
# Discretisations of dp-accounting, each with the span of privacy losses that it prices in a second
# or so.
INTERVALS = ((1e-5, 0.2), (1e-4, 60.0), (1e-3, 600.0), (1e-2, 6000.0))


@dataclass(frozen=True)
class Guarantee:
    """A promise of (ε, δ)-differential privacy with everything it rests on."""

    epsilon: float  # rounded up
    delta: float
    unit: str
    adjacency: str
    sampling: str
    view: str
    accountant: str
    clients: int
    cohort: float
    rounds: int
    noise_multiplier: float  # of the noise on the sum of a cohort, over the clipping norm
    notes: tuple[str, ...] = ()
    # what else than so many rounds of so many clients is counted, and what else may differ
    counted: str = ""
    differs: str = ""

    def statement(self) -> str:
        """Return the promise in plain sentences."""
        plural = "s" if self.rounds > 1 else ""
        differs = self.differs or OTHERS[self.unit, self.adjacency]
        counted = self.counted or (
            f"{self._drawn()} of {self.clients} clients ({self.sampling} sampling)"
        )
        return (
            f"ε = {rounded_up(self.epsilon)} at δ = {delta_text(self.delta)}, {self.unit} level: "
            f"training looks alike to {SEES[self.view]} (view {self.view}), "
            f"{differs} (adjacency {self.adjacency}). "
            f"It counts {self.rounds} round{plural} of {counted}; accountant: {self.accountant}."
        )

    def _drawn(self) -> str:
        """Return how many clients take part in a round, in words."""
        if self.cohort == self.clients:
            return "all"
        if self.sampling == "fixed":
            return f"{self.cohort:g}"
        return f"on average {self.cohort:g}"


@functools.lru_cache(maxsize=1024)
def guarantee(
    privacy: Privacy,
    *,
    noise: float,
    clipping_norm: float,
    cohort: float,
    clients: int,
    rounds: int,
    sampling: str,
    view: str | None = None,
    noise_last: bool = True,
    centred: bool = True,
) -> Guarantee:
    """Return the promise of one setting, at the accuracy of a report."""
    given = terms(
        privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view, noise_last, centred
    )
    delta = float(given.delta)
    found, accountant, comparison = priced(given, delta)
    notes = [
        *check(privacy, clients),
        *_conditions(given, sampling, comparison),
        *_exceptions(given.view, privacy, noise_last, centred),
        *_remarks(privacy, given, found, delta),
    ]
    return Guarantee(
        epsilon=found,
        delta=delta,
        unit=privacy.unit,
        adjacency="replace" if given.replace else privacy.adjacency,
        sampling=sampling,
        view=given.view,
        accountant=accountant,
        clients=clients,
        cohort=cohort,
        rounds=rounds,
        noise_multiplier=float(noise) * math.sqrt(float(cohort)) / float(clipping_norm),
        notes=tuple(notes),
    )


def rounded_up(epsilon: float, digits: int = 4) -> str:
    """Return ε with some significant digits, rounded up."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    places = digits - 1 - math.floor(math.log10(epsilon))
    return f"{math.ceil(Decimal(epsilon).scaleb(places)) * Decimal(10) ** -places:f}"


def delta_text(delta: float, digits: int = 6) -> str:
    """Return δ as people read it, with at most so many digits, rounded up."""
    rounded = Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(repr(float(delta))))
    return f"{float(rounded):g}"


def check(privacy: Privacy, clients: int) -> tuple[str, ...]:
    """Return warnings about what is asked of so many clients."""
    found = []
    delta = privacy.delta(clients)
    if delta * clients >= 1:
        found.append(
            f"δ = {delta:g} is not below 1/clients = {1 / clients:.3g}: "
            "giving away one client's data whole would still hold it. "
            f"Ask for at most {0.1 / clients:.2g}."
        )
    if privacy.unit == "client" and clients < 20:
        found.append(
            f"With {clients} clients, hiding a whole client takes noise of the size of the "
            "model's steps. Where each client holds many people's records, record level may be "
            "what you need: fedpareto plan."
        )
    return tuple(found)


def priced(given: Terms, delta: float) -> tuple[float, str, list[str]]:
    """Return ε, the accountant it comes from, and what another accountant says."""
    found = float(gaussian_epsilon(given.own(), delta))
    sampled = given.view == "release" and float(given.ratio) < 1
    if sampled and 0 < found < math.inf:
        return _released(given, delta) if given.secret else _shown(given, delta)
    return found, "analytic Gaussian", []


def _released(given: Terms, delta: float) -> tuple[float, str, list[str]]:
    """Return the lesser of our own ε and dp-accounting's, which it is, and what the other says.

    Where dp-accounting cannot be trusted or would take minutes, our own alone.
    """
    z = float(given.z)
    q = float(given.ratio)
    rounds = int(given.rounds)
    our_name = "PLD, connect-the-dots (fedpareto)"
    ours = float(release_epsilon(z, q, rounds, delta, given.pair, PRECISE))
    if given.pair == "fixed":
        return ours, our_name, []
    lost = _lost(rounds)
    if delta < 100 * lost:
        note = (
            f"dp-accounting was not asked: at a δ below {100 * lost:.2g} its rounding, "
            "which it does not count, can make its ε too small."
        )
        return ours, our_name, [note]
    interval = _interval(z, ours)
    if interval is None:
        note = "dp-accounting was not asked: at an ε this large it takes minutes."
        return ours, our_name, [note]
    their_name = f"PLD, dp-accounting {version('dp-accounting')}, interval {interval:g}"
    theirs = _dp_accounting(z, q, rounds, delta - lost, given.replace, interval)
    both = sorted([(ours, our_name), (theirs, their_name)])
    found, accountant = both[0]
    other, other_name = both[1]
    return found, accountant, [f"{other_name} gives {rounded_up(other, 6)}."]


def _shown(given: Terms, delta: float) -> tuple[float, str, list[str]]:
    """Return ε where it may show in which rounds a client took part."""
    own = float(given.z) / given.sensitivity
    found = float(shown_epsilon(own, float(given.ratio), int(given.rounds), delta))
    note = (
        "It is priced as if it were known in which rounds the client took part, because that may "
        "show. It hides what the client sends, not whether it is there."
    )
    return found, "analytic Gaussian, rounds taken part in drawn at random", [note]


def _lost(rounds: int) -> float:
    """Return how much of δ the rounding of dp-accounting's FFT can take, which it does not count.

    Measured against a lower bound: 2e-13 for 2,000 rounds, 4e-12 for 83,000. This is chosen above
    what was seen, not proven.
    """
    return 1e-11 + 1e-15 * rounds


def _interval(z: float, epsilon: float) -> float | None:
    """Return the discretisation with which dp-accounting takes a second or so, or None."""
    span = max(epsilon, 0.5 / z**2 + 8 / z)
    for interval, most in INTERVALS:
        if span < most:
            return interval
    return None


def _dp_accounting(
    z: float, q: float, rounds: int, delta: float, replace: bool, interval: float
) -> float:
    """Return ε of Poisson sampling by dp-accounting."""
    import dp_accounting

    relation = dp_accounting.NeighboringRelation
    neighbour = relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        accountant = dp_accounting.pld.PLDAccountant(neighbour, interval)
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
        accountant.compose(event, rounds)
        return float(accountant.get_epsilon(delta))


def _conditions(given: Terms, sampling: str, comparison: list[str]) -> list[str]:
    """Return what must hold for the promise to hold, with what another accountant says."""
    found = []
    if given.view == "release" and given.secret:
        found.append(
            "It holds only if nobody who sees the models learns who took part in which round, "
            "the server included."
        )
    if given.view == "release":
        found += comparison
    if sampling == "poisson" and given.view != "server":
        found.append(
            "Poisson sampling: the noise on the sum must be that of the expected cohort, and the "
            "sum divided by the expected cohort, however many clients came. Where nobody came, the "
            "server adds that noise."
        )
    return found


def _exceptions(view: str, privacy: Privacy, noise_last: bool, centred: bool) -> list[str]:
    """Say why more is counted than the usual noise and distance."""
    found = []
    if view != "server" and not noise_last:
        found.append(
            "Uploads are changed after their noise is added, so only the client's own noise is "
            "counted, and not that of the whole cohort. Put the noise last to have it counted."
        )
    if not centred and privacy.adjacency == "zero_out":
        found.append(
            "The noise hides the client's parameters and not its update. Left out, a client can "
            "still move them by twice the clipping norm, so it is priced as a replaced one."
        )
    return found


def _remarks(privacy: Privacy, given: Terms, epsilon: float, delta: float) -> list[str]:
    """Return what a reader should know about how much an ε promises."""
    found = size_remarks(epsilon)
    if given.view != "server" and privacy.lost:
        found.append(
            f"It does not count on the noise of {privacy.lost} of the clients who come: "
            f"{privacy.dropouts} dropouts, {privacy.colluders} colluders."
        )
    asked_for_less = privacy.adjacency == "zero_out" and privacy.unit == "client"
    fixed_cohorts = given.view == "release" and given.pair == "fixed" and given.secret
    if fixed_cohorts and asked_for_less:
        found.append(_fixed_cohorts(given, epsilon, delta))
    return found


def size_remarks(epsilon: float) -> list[str]:
    """Say that a large ε promises little."""
    if epsilon > 100:
        return [
            f"ε = {rounded_up(epsilon)} promises next to nothing: "
            "e^ε bounds how much surer an onlooker can become."
        ]
    if epsilon > 10:
        return [
            f"ε = {rounded_up(epsilon)} promises little on paper; "
            "below 10 is usual, below 1 is strong."
        ]
    return []


def _fixed_cohorts(given: Terms, epsilon: float, delta: float) -> str:
    """Say that fixed cohorts are priced against a replaced client, and whether that costs ε."""
    better = ""
    plain = float(gaussian_epsilon(given.z / np.sqrt(given.rounds), delta))
    if plain < epsilon:
        better = (
            f"; left out, ε = {rounded_up(plain)} holds without counting on secrecy (view secagg)"
        )
    return (
        "Fixed cohorts are priced against a replaced client, "
        f"which is harder to hide than one left out{better}."
    )
