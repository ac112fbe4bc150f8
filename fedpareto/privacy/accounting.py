"""True privacy: the (ε, δ) of a federation whose clients clip and add noise, for a stated view and neighbour.

Who looks on decides more than the accountant does:
    server   sees every upload, so each client's own noise alone protects it
    secagg   sees sums of uploads and knows who took part (secure aggregation)
    release  sees the models alone, and who took part stays secret: the one view that sampling amplifies
Letters: s is the noise each client adds, c the clipping norm, m the cohort of a round, K all clients, T the rounds.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.contract import SAMPLINGS, VIEWS
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.privacy.gaussian import gaussian_epsilon, gaussian_multiplier
from fedpareto.privacy.loss import FAST, PRECISE, release_epsilon, release_multiplier
from fedpareto.settings import setting
from fedpareto.space import FloatArray

UNITS = ("client", "record")
ADJACENCIES = ("zero_out", "replace")


@dataclass(frozen=True)
class Privacy:
    """Against whom privacy is promised, and to whom."""

    view: str = setting(
        "server",
        help="who looks on: server sees each upload, secagg sums and who took part, release the models alone",
        options=VIEWS,
        search=False,
    )
    target_delta: float | None = setting(
        None,
        help="δ, the chance that the promise fails; 1e-5, or 1/(10 clients) if that is less",
        above=0,
        at_most=0.5,
        search=False,
    )
    target_epsilon: float | None = setting(
        None, help="ε to hold, if one is asked for", above=0, at_most=1e9, search=False
    )
    unit: str = setting(
        "client",
        help="what one promise covers: all of a client's data, or one record of it",
        options=UNITS,
        search=False,
    )
    adjacency: str = setting(
        "zero_out",
        help="the neighbour that must look alike: the client's update left out, or any other in its place",
        options=ADJACENCIES,
        search=False,
    )
    dropouts: int = setting(
        0,
        help="clients of a round that may fail to send, so that their noise is missing",
        at_least=0,
        at_most=1_000_000_000,
        search=False,
    )
    colluders: int = setting(
        0,
        help="clients of a round that may tell their noise to whoever looks on",
        at_least=0,
        at_most=1_000_000_000,
        search=False,
    )
    private_data: bool = setting(
        False,
        help="whether the search itself trains on private data, so that choosing among its trials "
        "costs privacy too",
        search=False,
    )

    def delta(self, clients: float) -> float:
        """Return δ: the one given, or min(1e-5, 1/(10 K))."""
        return self.target_delta if self.target_delta is not None else min(1e-5, 0.1 / clients)


@dataclass(frozen=True)
class Terms:
    """One setting or many, ready to price. Arrays broadcast."""

    z: FloatArray  # noise multiplier of what is seen, over a client zeroed out
    ratio: FloatArray  # q = m / K
    rounds: FloatArray
    delta: FloatArray
    view: str
    pair: str  # for the release view, see loss.PAIRS
    replace: bool  # sensitivity 2c rather than c

    def own(self) -> FloatArray:
        """Return the noise multiplier over the sensitivity, all rounds as one, without sampling."""
        return np.asarray(self.z / (2 if self.replace else 1) / np.sqrt(self.rounds))


def terms(
    privacy: Privacy,
    noise: ArrayLike,
    clipping_norm: ArrayLike,
    cohort: ArrayLike,
    clients: ArrayLike,
    rounds: ArrayLike,
    sampling: str,
    view: str | None,
) -> Terms:
    """Check a setting and return what the accountants need of it."""
    view = view or privacy.view
    for name, value, options in (("view", view, VIEWS), ("sampling", sampling, SAMPLINGS)):
        if value not in options:
            raise SettingError(
                f"{name}: must be one of {', '.join(options)}, found {value!r}. {did_you_mean(value, options)}"
            )
    s, c = _numbers("noise", noise, 0.0), _numbers("clipping_norm", clipping_norm, 0.0, above=True)
    m, K, T = (
        _numbers(name, v, 1.0)
        for name, v in (("cohort", cohort), ("clients", clients), ("rounds", rounds))
    )
    if (m > K).any():
        raise SettingError(
            f"cohort: must be at most the number of clients, {_shown(K)}, found {_shown(m)}."
        )
    if (np.floor(T) != T).any():
        raise SettingError(f"rounds: must be whole numbers, found {_shown(T)}.")
    lost = privacy.dropouts + privacy.colluders
    if view != "server" and (m - lost < 1).any():
        raise SettingError(
            f"cohort: must leave at least one honest client after {privacy.dropouts} dropouts and {privacy.colluders} "
            f"colluders, found {_shown(m)}. Raise the cohort, or count fewer of them."
        )
    with np.errstate(over="ignore", under="ignore"):
        z = s / c if view == "server" else s * np.sqrt(m - lost) / c
    wide = privacy.adjacency == "replace" or privacy.unit == "record"
    pair = "fixed" if sampling == "fixed" else "poisson_replace" if wide else "poisson"
    delta = (
        np.minimum(1e-5, 0.1 / K)
        if privacy.target_delta is None
        else np.asarray(privacy.target_delta)
    )
    return Terms(z, m / K, T, delta, view, pair, wide or (view == "release" and pair == "fixed"))


def epsilon(
    privacy: Privacy,
    *,
    noise: ArrayLike,
    clipping_norm: ArrayLike,
    cohort: ArrayLike,
    clients: ArrayLike,
    rounds: ArrayLike,
    sampling: str,
    view: str | None = None,
    accuracy: float = FAST,
) -> FloatArray:
    """Return ε, rounded up, of one setting or of arrays of them; inf where no noise is added.

    noise is the standard deviation each client adds to each number it sends. server and secagg count a client that joins
    every round. With unit "record" the neighbour differs in one record of one client, which may move its clipped update
    by 2c: never better than zeroing out the client. release with fixed cohorts always compares with a replaced client.
    """
    given = terms(privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view)
    if given.view != "release":
        own, delta, _ = np.broadcast_arrays(given.own(), given.delta, given.ratio)
        return gaussian_epsilon(own, delta)
    return release_epsilon(given.z, given.ratio, given.rounds, given.delta, given.pair, accuracy)


def noise_for(
    privacy: Privacy,
    target_epsilon: float,
    *,
    clipping_norm: float,
    cohort: float,
    clients: float,
    rounds: int,
    sampling: str,
    view: str | None = None,
) -> float:
    """Return the least noise s of each client that holds a target ε, rounded up."""
    if not (0 < target_epsilon < math.inf):
        raise SettingError(f"target_epsilon: must be above 0 and finite, found {target_epsilon!r}.")
    unit = terms(privacy, 1.0, clipping_norm, cohort, clients, rounds, sampling, view)
    if unit.view == "release":
        needed = release_multiplier(
            target_epsilon, float(unit.ratio), rounds, float(unit.delta), unit.pair
        )
    else:
        needed = (
            float(gaussian_multiplier(target_epsilon, unit.delta))
            * (2 if unit.replace else 1)
            * math.sqrt(rounds)
        )
    s, gap = needed / float(unit.z), 1e-12
    while (
        epsilon(
            privacy,
            noise=s,
            clipping_norm=clipping_norm,
            cohort=cohort,
            clients=clients,
            rounds=rounds,
            sampling=sampling,
            view=view,
        )
        > target_epsilon
    ):
        s, gap = s * (1 + gap), 2 * gap
    return s


SEES = {
    "server": "whoever sees each client's upload",
    "secagg": "whoever sees the sums of uploads and knows who took part",
    "release": "whoever sees the released models alone, while who took part stays secret",
}
OTHERS = {
    ("client", "zero_out"): "whether or not one client's update is left out",
    ("client", "replace"): "whether or not one client's data is replaced by any other",
    ("record", "replace"): "whether or not one record of one client is replaced by any other",
}


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

    def statement(self) -> str:
        """Return the promise in plain sentences."""
        drawn = (
            "all"
            if self.cohort == self.clients
            else f"{self.cohort:g}"
            if self.sampling == "fixed"
            else f"on average {self.cohort:g}"
        )
        return (
            f"ε = {rounded_up(self.epsilon)} at δ = {self.delta:g}, {self.unit} level: training looks alike to {SEES[self.view]} "
            f"(view {self.view}), {OTHERS[self.unit, self.adjacency]} (adjacency {self.adjacency}). It counts {self.rounds} "
            f"round{'s' if self.rounds > 1 else ''} of {drawn} of {self.clients} clients ({self.sampling} sampling); "
            f"accountant: {self.accountant}."
        )


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
) -> Guarantee:
    """Return the promise of one setting, at the accuracy of a report."""
    given = terms(privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view)
    delta, notes = float(given.delta), list(check(privacy, clients))
    found, accountant = float(gaussian_epsilon(given.own(), delta)), "analytic Gaussian"
    if given.view == "release":
        notes.append(
            "It holds only if nobody who sees the models learns who took part in which round, the server included."
        )
        if float(given.ratio) < 1 and 0 < found < math.inf:
            found, accountant, also = _released(given, delta)
            notes += also
    if sampling == "poisson" and given.view != "server":
        notes.append(
            "Poisson sampling: the noise on the sum must be that of the expected cohort, and the sum divided by the expected "
            "cohort, however many clients came."
        )
    notes += _remarks(privacy, given, found, delta)
    adjacency = "replace" if given.replace else privacy.adjacency
    total = float(noise) * math.sqrt(float(cohort)) / float(clipping_norm)
    return Guarantee(
        found,
        delta,
        privacy.unit,
        adjacency,
        sampling,
        given.view,
        accountant,
        clients,
        cohort,
        rounds,
        total,
        tuple(notes),
    )


def rounded_up(epsilon: float, digits: int = 4) -> str:
    """Return ε with some significant digits, rounded up."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    places = digits - 1 - math.floor(math.log10(epsilon))
    return f"{math.ceil(Decimal(epsilon).scaleb(places)) * Decimal(10) ** -places:f}"


def _released(given: Terms, delta: float) -> tuple[float, str, list[str]]:
    """Return the lesser of our own ε and dp-accounting's, which one it is, and what the other says."""
    z, q, rounds = float(given.z), float(given.ratio), int(given.rounds)
    ours = (
        float(release_epsilon(z, q, rounds, delta, given.pair, PRECISE)),
        "PLD, connect-the-dots (fedpareto)",
    )
    if given.pair == "fixed":
        return *ours, []
    interval = _interval(z, ours[0])
    if interval is None:
        return *ours, ["dp-accounting was not asked: at an ε this large it takes minutes."]
    name = f"PLD, dp-accounting {version('dp-accounting')}, interval {interval:g}"
    theirs = _dp_accounting(z, q, rounds, delta, given.replace, interval), name
    (found, accountant), (other, name) = sorted([ours, theirs])
    return found, accountant, [f"{name} gives {rounded_up(other, 6)}."]


def _interval(z: float, epsilon: float) -> float | None:
    """Return the discretisation with which dp-accounting takes a second or so, or None."""
    span = max(epsilon, 0.5 / z**2 + 8 / z)
    return next(
        (
            step
            for step, most in ((1e-5, 0.2), (1e-4, 60.0), (1e-3, 600.0), (1e-2, 6000.0))
            if span < most
        ),
        None,
    )


def _dp_accounting(
    z: float, q: float, rounds: int, delta: float, replace: bool, interval: float
) -> float:
    import dp_accounting

    relation = dp_accounting.NeighboringRelation
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        accountant = dp_accounting.pld.PLDAccountant(
            relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE, interval
        )
        accountant.compose(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), rounds
        )
        return float(accountant.get_epsilon(delta))


def _remarks(privacy: Privacy, given: Terms, epsilon: float, delta: float) -> list[str]:
    """Return what a reader should know about how much an ε promises."""
    found = []
    if epsilon > 100:
        found.append(
            f"ε = {rounded_up(epsilon)} promises next to nothing: e^ε bounds how much surer an onlooker can become."
        )
    elif epsilon > 10:
        found.append(
            f"ε = {rounded_up(epsilon)} promises little on paper; below 10 is usual, below 1 is strong."
        )
    if given.view != "server" and privacy.dropouts + privacy.colluders:
        found.append(
            f"It counts on the noise of {privacy.dropouts + privacy.colluders} clients fewer than a cohort: {privacy.dropouts} "
            f"dropouts, {privacy.colluders} colluders."
        )
    if (
        given.view == "release"
        and given.replace
        and privacy.adjacency == "zero_out"
        and privacy.unit == "client"
    ):
        plain = float(gaussian_epsilon(given.z / np.sqrt(given.rounds), delta))
        better = (
            f"; left out, ε = {rounded_up(plain)} holds without counting on secrecy (view secagg)"
            if plain < epsilon
            else ""
        )
        found.append(
            f"Fixed cohorts are priced against a replaced client, which is harder to hide than one left out{better}."
        )
    return found


def check(privacy: Privacy, clients: int) -> tuple[str, ...]:
    """Return warnings about what is asked of so many clients."""
    found = []
    delta = privacy.delta(clients)
    if delta * clients >= 1:
        found.append(
            f"δ = {delta:g} is not below 1/clients = {1 / clients:.3g}: giving away one client's data whole would still hold it. "
            f"Ask for at most {0.1 / clients:.2g}."
        )
    if privacy.unit == "client" and clients < 20:
        found.append(
            f"With {clients} clients, hiding a whole client takes noise of the size of the model's steps. "
            "Where each client holds many people's records, record level may be what you need: fedpareto plan."
        )
    return tuple(found)


def _numbers(name: str, value: ArrayLike, least: float, above: bool = False) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array) & ((array > least) if above else (array >= least))).all():
        raise SettingError(
            f"{name}: must be finite and {'above' if above else 'at least'} {least:g}, found {_shown(array)}."
        )
    return array


def _shown(array: FloatArray) -> str:
    return f"{float(array):g}" if array.ndim == 0 else str(array)
