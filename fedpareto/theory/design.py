"""Parameter design at low cost (Gu 2024, V-D).

The k of a small experiment gives the noise of the real federation and predicts its whole front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray
from fedpareto.theory.estimate import Estimate
from fedpareto.theory.inputs import TOLERANCE, box, numbers, whole
from fedpareto.theory.law import Rows, pareto_set, sigma_of


@dataclass(frozen=True)
class Design:
    """The noise to add in a real federation, and the front that is predicted for it."""

    estimate: Estimate
    clients: int
    sample_ratio: float
    rounds: int
    rounds_max: int
    sigma: float
    sigma_interval: tuple[float, float]  # what k's interval leaves open
    front: Rows = field(repr=False, compare=False)  # rounds, sigma, f1, f2
    message: str = ""

    def as_plain(self) -> dict[str, Any]:
        """Return the design as a dictionary that JSON can hold."""
        names = self.front.dtype.names or ()
        front = [dict(zip(names, row, strict=True)) for row in self.front.tolist()]
        return {
            **self.estimate.as_plain(),
            "clients": self.clients,
            "sample_ratio": self.sample_ratio,
            "rounds": self.rounds,
            "rounds_max": self.rounds_max,
            "sigma": self.sigma,
            "sigma_interval": list(self.sigma_interval),
            "front": front,
            "message": self.message,
        }


def ratio_of(rounds: float, sigma: float, k: float, clients: float) -> float:
    """Return the share of the clients that a round must ask by the law: q = kσ²T/K (Theorem 2).

    It is refused where it asks for more than all clients, or for less than one.
    """
    T = numbers("rounds", rounds, least=1)
    s = numbers("sigma", sigma, above=0)
    rate = numbers("k", k, above=0)
    K = float(numbers("clients", clients, least=1))
    ratio = float(rate * s**2 * T / K)
    if not (1 - TOLERANCE) / K <= ratio <= 1 + TOLERANCE:
        todo = "Take less noise or fewer rounds" if ratio > 1 else "Take more noise or more rounds"
        raise SettingError(
            f"sigma: the law must ask for between 1 and all {K:g} clients, found q = {ratio:.4g} "
            f"for σ = {float(s):g} and {float(T):g} rounds. {todo}."
        )
    return min(1.0, max(ratio, 1 / K))


def rounds_within(seconds: float, seconds_per_round: float) -> int:
    """Return how many rounds a time limit allows: T_max = ⌊ε̄_e/c_t⌋ (Gu 2024, Eq. 4 and 26)."""
    limit = numbers("seconds", seconds, above=0)
    each = numbers("seconds_per_round", seconds_per_round, above=0)
    rounds = np.floor(limit / each * (1 + TOLERANCE))
    if not 1 <= rounds <= 1e15:
        raise SettingError(
            f"seconds: must allow at least one round and no more than 1e15, found {float(limit):g} "
            f"s for rounds of {float(each):g} s. Change the time limit."
        )
    return int(rounds)


def design(
    estimate: Estimate,
    *,
    clients: int,
    sample_ratio: float | None = None,
    rounds_max: int,
    rounds: int | None = None,
    sigma: float | None = None,
    sigma_min: float = 0.0,
    sigma_max: float | None = None,
    points: int = 5,
) -> Design:
    """Return the noise for these rounds and the front predicted for T ≤ rounds_max.

    The noise is σ = √(qK/(kT)) (Gu 2024, V-D, step 2). rounds is rounds_max unless given. If the
    law asks for noise outside [sigma_min, sigma_max], the nearer end is taken, which is
    Pareto-optimal too. With a sigma and no sample_ratio, the share of clients to ask is solved for.
    """
    last = int(whole("rounds_max", rounds_max))
    T = last
    if rounds is not None:
        T = int(whole("rounds", rounds))
    if last < T:
        raise SettingError(
            f"rounds: must be at most rounds_max, found {T} and {last}. Ask for fewer rounds or "
            "allow more."
        )
    if (sigma is None) == (sample_ratio is None):
        raise SettingError(
            "design: exactly one of sample_ratio and sigma must be given, found "
            f"{sample_ratio} and {sigma}. The other follows from the law."
        )
    if sample_ratio is None:
        assert sigma is not None
        _check_sigma(sigma, *map(float, box(sigma_min, sigma_max)))
        sample_ratio = ratio_of(T, sigma, estimate.k, clients)
        law = np.full(3, sigma)
        asked = f" and ask {sample_ratio:.4g} of the clients in each"
    else:
        law = sigma_of(T, (estimate.k, *estimate.interval), clients, sample_ratio)
        asked = ""
    # k's interval is in rising order, and a smaller k means more noise
    noise, most, least = np.clip(law, *box(sigma_min, sigma_max)).tolist()
    front = pareto_set(
        k=estimate.k,
        clients=clients,
        sample_ratio=sample_ratio,
        rounds_max=last,
        sigma_min=sigma_min,
        sigma_max=sigma_max,
        points=points,
    )
    message = _message(T, float(law[0]), noise, estimate, asked)
    interval = (least, most)
    return Design(estimate, clients, sample_ratio, T, last, noise, interval, front, message)


def settings_of(designs: Sequence[Design], sigmas: FloatArray) -> list[dict[str, float]]:
    """Return what is trained after designs for rising sample ratios: rounds, σ and sample ratio.

    Of one design it is its own setting (Gu 2024, Table II). Of several, the whole front, it is one
    for each noise that was tried, with the share of clients that the law gives it, or the nearest
    of theirs (Table III).
    """
    last = designs[-1]
    if len(designs) == 1:
        shares, noises = [last.sample_ratio], [last.sigma]
    else:
        law = last.estimate.k * sigmas**2 * last.rounds / last.clients
        shares = np.clip(law, designs[0].sample_ratio, last.sample_ratio).tolist()
        noises = sigmas.tolist()
    return [
        {"rounds": last.rounds, "sigma": s, "sample_ratio": q}
        for s, q in zip(noises, shares, strict=True)
    ]


def _check_sigma(sigma: float, least: float, most: float) -> None:
    """Refuse a given noise outside the range: the share of clients would go with another."""
    if not least * (1 - TOLERANCE) <= sigma <= most * (1 + TOLERANCE):
        raise SettingError(
            f"sigma: must lie in the range allowed, [{least:g}, {most:g}], found {sigma:g}. Choose "
            "another, or widen the range."
        )


def _message(rounds: int, law: float, sigma: float, estimate: Estimate, asked: str) -> str:
    words = [f"Train {rounds} rounds with σ = {sigma:.4g}{asked}."]
    if sigma != law:
        words.append(f"The law asks for σ = {law:.4g}, which lies outside the range allowed.")
    return " ".join([*words, estimate.message])
