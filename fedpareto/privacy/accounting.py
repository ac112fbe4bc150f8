"""True privacy: the (ε, δ) of a federation whose clients clip and add noise.

It is always that of a stated view and neighbour. Who looks on decides more than the accountant:
    server   sees every upload, so each client's own noise alone protects it
    secagg   sees sums of uploads and knows who took part (secure aggregation)
    release  sees the models alone, and who took part stays secret: the one view where drawing
             clients at random makes ε smaller
Letters: s is the noise each client adds, c the clipping norm, m the cohort of a round, K all
clients, T the rounds, z the noise on what is seen over the clipping norm.

`statement` puts an ε into words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.contract import SAMPLINGS, VIEWS, on_the_sum, stays_secret
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.privacy.gaussian import gaussian_epsilon, gaussian_multiplier
from fedpareto.privacy.loss import FAST, release_epsilon, release_multiplier
from fedpareto.privacy.shown import shown_epsilon, shown_multiplier
from fedpareto.settings import Rule, check_fields, checked, setting
from fedpareto.space import FloatArray

UNITS = ("client", "record")
ADJACENCIES = ("zero_out", "replace")


@dataclass(frozen=True)
class Privacy:
    """Against whom privacy is promised, and to whom."""

    view: str = setting(
        "server",
        help="who looks on: server sees each upload, secagg sums and who took part, "
        "release the models alone",
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
        help="what one promise covers: all of a client's data, or one record of it: where local "
        "steps clip records, by their noise, else by that on updates",
        options=UNITS,
        search=False,
    )
    adjacency: str = setting(
        "zero_out",
        help="the neighbour that must look alike: the client's update left out, "
        "or any other in its place",
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
    records_per_person: int = setting(
        1,
        help="records of one person, all of one client, that are hidden together where single "
        "records are clipped",
        at_least=1,
        at_most=1_000_000,
        search=False,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def delta(self, clients: float) -> float:
        """Return δ: the one given, or min(1e-5, 1/(10 K))."""
        if self.target_delta is not None:
            return self.target_delta
        return min(1e-5, 0.1 / clients)

    @property
    def replaces_clients(self) -> bool:
        """Whether any other client, of any size, may stand in the place of one."""
        return self.unit == "client" and self.adjacency == "replace"

    @property
    def lost(self) -> int:
        """How many clients of a round add no noise that can be counted on."""
        return self.dropouts + self.colluders


@dataclass(frozen=True)
class Terms:
    """What accountants need of one setting or of many; arrays broadcast."""

    z: FloatArray  # noise multiplier of what is seen, over a client zeroed out
    ratio: FloatArray  # q = m / K
    rounds: FloatArray
    delta: FloatArray
    view: str
    pair: str  # for the release view, see loss.PAIRS
    replace: bool  # sensitivity 2c rather than c
    # of the release view: whether it does not show in which rounds a client took part
    secret: bool = True

    @property
    def sensitivity(self) -> int:
        """How far one client can move what is seen, in clipping norms."""
        return 2 if self.replace else 1

    def own(self) -> FloatArray:
        """Return the noise multiplier over the sensitivity, all rounds as one, without sampling."""
        return np.asarray(self.z / self.sensitivity / np.sqrt(self.rounds))


def terms(
    privacy: Privacy,
    noise: ArrayLike,
    clipping_norm: ArrayLike,
    cohort: ArrayLike,
    clients: ArrayLike,
    rounds: ArrayLike,
    sampling: str,
    view: str | None,
    noise_last: bool = True,
    centred: bool = True,
) -> Terms:
    """Check a setting and return what the accountants need of it.

    noise_last and centred are those of `contract.Round`.
    """
    view = view or privacy.view
    _check_option("view", view, VIEWS)
    _check_option("sampling", sampling, SAMPLINGS)
    s = _numbers("noise", noise, 0.0)
    c = _numbers("clipping_norm", clipping_norm, 0.0, above=True)
    m = _numbers("cohort", cohort, 1.0)
    K = _numbers("clients", clients, 1.0)
    T = _numbers("rounds", rounds, 1.0)
    _check_whole("clients", K)
    _check_whole("rounds", T)
    if sampling == "fixed":
        _check_whole("cohort", m)
    _check_counts(privacy, m, K, view)
    alone = view == "server" or not noise_last
    with np.errstate(over="ignore", under="ignore"):
        z = (s if alone else on_the_sum(s, m, sampling, privacy.lost)) / c
    wide = privacy.adjacency == "replace" or privacy.unit == "record" or not centred
    if sampling == "fixed":
        pair = "fixed"
    elif wide:
        pair = "poisson_replace"
    else:
        pair = "poisson"
    if privacy.target_delta is None:
        delta = np.minimum(1e-5, 0.1 / K)
    else:
        delta = np.asarray(privacy.target_delta)
    secret = stays_secret(sampling, privacy.dropouts, privacy.colluders, noise_last, centred)
    strangers = K  # who a client may be mistaken for
    if sampling == "fixed":
        strangers = np.maximum(K - privacy.colluders, m)
    return Terms(
        z=z,
        ratio=m / strangers,
        rounds=T,
        delta=delta,
        view=view,
        pair=pair,
        replace=wide or (view == "release" and pair == "fixed" and secret),
        secret=secret,
    )


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
    noise_last: bool = True,
    centred: bool = True,
    accuracy: float = FAST,
) -> FloatArray:
    """Return ε, rounded up, of one setting or of arrays of them; inf where no noise is added.

    noise is the standard deviation each client adds to each number it sends. server and secagg
    count a client that joins every round. With unit "record" the neighbour differs in one record of
    one client, which may move its clipped update by 2c: never better than zeroing out the client.
    release with fixed cohorts always compares with a replaced client. noise_last and centred are
    those of `contract.Round`.
    """
    given = terms(
        privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view, noise_last, centred
    )
    if given.view != "release":
        own, delta, _ = np.broadcast_arrays(given.own(), given.delta, given.ratio)
        return gaussian_epsilon(own, delta)
    if not given.secret:
        own = given.z / given.sensitivity
        return shown_epsilon(own, given.ratio, given.rounds, given.delta)
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
    noise_last: bool = True,
    centred: bool = True,
) -> float:
    """Return the least noise s of each client that holds a target ε, rounded up."""
    checked("target_epsilon", target_epsilon, float, Rule(above=0))
    unit = terms(
        privacy, 1.0, clipping_norm, cohort, clients, rounds, sampling, view, noise_last, centred
    )
    ratio, delta = float(unit.ratio), float(unit.delta)
    if unit.view != "release":
        multiplier = float(gaussian_multiplier(target_epsilon, unit.delta))
        needed = multiplier * unit.sensitivity * math.sqrt(rounds)
    elif unit.secret:
        needed = release_multiplier(target_epsilon, ratio, rounds, delta, unit.pair)
    else:
        needed = unit.sensitivity * shown_multiplier(target_epsilon, ratio, rounds, delta)

    def price(s: float) -> FloatArray:
        return epsilon(
            privacy,
            noise=s,
            clipping_norm=clipping_norm,
            cohort=cohort,
            clients=clients,
            rounds=rounds,
            sampling=sampling,
            view=view,
            noise_last=noise_last,
            centred=centred,
        )

    s = needed / float(unit.z)
    gap = 1e-12
    while price(s) > target_epsilon:  # rounding may have left it a little too small
        s = s * (1 + gap)
        gap = 2 * gap
    return s


def _check_option(name: str, value: str, options: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the options."""
    if value not in options:
        raise SettingError(
            f"{name}: must be one of {', '.join(options)}, found {value!r}. "
            f"{did_you_mean(value, options)}"
        )


def _check_whole(name: str, found: FloatArray) -> None:
    """Refuse parts of clients or rounds."""
    if (np.floor(found) != found).any():
        raise SettingError(f"{name}: must be whole numbers, found {_shown(found)}.")


def _check_counts(privacy: Privacy, m: FloatArray, K: FloatArray, view: str) -> None:
    """Refuse a cohort that is too large or leaves no honest client."""
    if (m > K).any():
        raise SettingError(
            f"cohort: must be at most the number of clients, {_shown(K)}, found {_shown(m)}."
        )
    if view != "server" and (m - privacy.lost < 1).any():
        raise SettingError(
            "cohort: must leave at least one honest client after "
            f"{privacy.dropouts} dropouts and {privacy.colluders} colluders, found {_shown(m)}. "
            "Raise the cohort, or count fewer of them."
        )


def _numbers(name: str, value: ArrayLike, least: float, above: bool = False) -> FloatArray:
    """Return finite numbers, all at least `least`, or above it where `above` says so."""
    given = np.asarray(value)
    if given.dtype.kind not in "iuf":  # a text or a truth value would pass as a number
        raise SettingError(f"{name}: must be numbers, found {value!r}.")
    array = given.astype(np.float64)
    large_enough = array > least if above else array >= least
    if not (np.isfinite(array) & large_enough).all():
        bound = "above" if above else "at least"
        raise SettingError(f"{name}: must be finite and {bound} {least:g}, found {_shown(array)}.")
    return array


def _shown(array: FloatArray) -> str:
    """Return numbers as an error message shows them."""
    if array.ndim == 0:
        return f"{float(array):g}"
    return str(array)
