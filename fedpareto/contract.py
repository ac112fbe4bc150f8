"""The terms of a round: who may come, what divides the sum, which noise is added, who sees what.

Training draws from it, accountants price it, plans solve it, known costs and statements read it:
no other module decides any of this.

Letters: K is all clients, m the clients expected in a round, n those who came, s the noise of one
client, c the largest norm of what the noise hides. Beside a client, a record of one may be hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.space import FloatArray

VIEWS = ("server", "secagg", "release")
SAMPLINGS = ("fixed", "poisson")
WEIGHTINGS = ("uniform", "size")
BATCHES = ("poisson", "shuffled")
# by how much the norm over the noise may be larger in training, which rounds both to 32 bits
FLOAT32 = 1 + 4e-7


def cohort(sample_ratio: float, clients: int, sampling: str = "fixed") -> float:
    """Return how many clients a sample ratio asks for: a whole number, at least one.

    Under Poisson sampling each client comes by its own chance, and this is the number expected:
    exactly m where the ratio is m / K, which m / K times K is not always.
    """
    if sampling == "poisson":
        whole = round(sample_ratio * clients)
        return whole if whole / clients == sample_ratio else sample_ratio * clients
    return max(1, round(sample_ratio * clients))


@dataclass(frozen=True)
class Seen:
    """What one onlooker sees of a round, as an accountant needs it.

    server sees every upload, secagg the sum of a round's uploads and who took part, release the
    models alone. One client left out moves each upload or sum by at most norm (twice that where
    what is sent of it is not centred); noise is what each client is sure to add to what is seen.
    """

    view: str
    noise: Any  # [n]
    norm: Any  # [n]
    cohort: Any  # [n]
    clients: int
    sampling: str
    noise_last: bool = True
    centred: bool = True

    def terms(self, rounds: Any) -> dict[str, Any]:
        """Return the arguments of an accountant for so many rounds."""
        return {
            "noise": self.noise,
            "clipping_norm": self.norm,
            "cohort": self.cohort,
            "clients": self.clients,
            "rounds": rounds,
            "sampling": self.sampling,
            "view": self.view,
            "noise_last": self.noise_last,
            "centred": self.centred,
        }


@dataclass(frozen=True)
class Uses:
    """How a round uses each record of a client that holds so many, as an accountant needs it."""

    size: int
    ratio: Any  # [n] the chance of each record to be in a step; 1 where chance hides nothing
    times: Any  # [n] how many steps of a round it may be in


@dataclass(frozen=True)
class Records:
    """How local steps hide each record of a client; every array is [n], or one number for all.

    At every step a client scales the gradient of each record of its mini-batch down to the norm,
    adds noise to their sum, and divides by the records expected, however many there were. That is
    so for every client of every round, whoever looks on: what a client sends follows from it. The
    noise of other clients is not counted, nor that a client may not take part in every round.
    """

    noise: Any  # on the sum of a mini-batch
    norm: Any
    batch: Any  # records expected in a mini-batch
    sizes: tuple[int, ...]  # how many records clients hold, each number once
    steps: Any = 0  # local steps of a round; or
    epochs: Any = 0  # passes over a client's records
    batches: str = "poisson"  # each record by its own chance; or shuffled: once in every pass

    @property
    def by_chance(self) -> bool:
        """Whether each record is in a step by a chance of its own."""
        return by_chance(self.batches)

    @property
    def seen_noise(self) -> Any:
        """The noise on what is seen of a record, over how far it moves that."""
        return np.asarray(self.noise, dtype=np.float64) / self.norm / FLOAT32

    def steps_of(self, size: int) -> Any:
        """Return how many steps a client with so many records takes in a round."""
        if np.any(self.steps):
            return self.steps
        return self.epochs * np.ceil(size / np.asarray(self.batch))

    def uses(self) -> list[Uses]:
        """Return how records are used by clients of each size that could count the most.

        Of sizes with as many steps it is the smallest.
        """
        if not self.by_chance:  # once in each pass, in whichever step: nothing is hidden
            return [Uses(min(self.sizes), np.ones_like(self.seen_noise), self.epochs)]
        smallest: dict[Any, Uses] = {}
        for size in sorted(self.sizes, reverse=True):
            steps = np.asarray(self.steps_of(size))
            smallest[steps.tobytes()] = Uses(size, chance(self.batch, size), steps)
        return list(smallest.values())

    def covers(self, size: int) -> bool:
        """Say whether ε holds for a client of so many records too.

        It does where one of the sizes uses each record as often or more: by as large a chance, in
        as many steps.
        """
        if not self.by_chance:
            return True
        steps = np.asarray(self.steps_of(size))
        return any(
            size >= priced and bool(np.all(steps <= self.steps_of(priced))) for priced in self.sizes
        )


def by_chance(batches: str) -> bool:
    """Say whether each record is in a mini-batch by a chance of its own."""
    return batches == "poisson"


def chance(batch: Any, size: int) -> Any:
    """Return the chance of each record of a client to be in a mini-batch (Poisson sampling)."""
    return np.asarray(batch, dtype=np.float64) / size


@dataclass(frozen=True)
class Round:
    """The terms of a round of n federations; every array is [n], or one number for all."""

    clients: int
    cohort: Any  # m, clients expected
    sampling: str = "fixed"  # a cohort of fixed size, or each client by its own chance (poisson)
    weighting: str = "uniform"  # what an upload counts in the sum: the same for all, or by size
    noise: Any = None  # s, of each client where as many come as expected; None for no noise
    norm: Any = None  # c
    # whether an upload is sent as it is once it has its noise; if not, sums of uploads do not have
    # Gaussian noise, and a client can count on its own alone
    noise_last: bool = True
    centred: bool = True  # whether an update of zero is sent as zero, but for the noise
    records: Records | None = None  # how local steps hide records; None where they do not

    @property
    def most(self) -> Any:
        """The most clients that one sum may hold."""
        if self.sampling == "fixed":
            return self.cohort
        return np.full_like(np.asarray(self.cohort, dtype=np.float64), self.clients)

    def divisor(self, came: Any, expected: Any) -> Any:
        """Return what the sum of uploads is divided by, from the weight that came and is expected.

        Under Poisson sampling it is the weight expected, however many came: a divisor that
        follows the number who came would tell it.
        """
        return came if self.sampling == "fixed" else expected

    def facts(self, came: Any = None) -> dict[str, Any]:
        """Return what a mechanism learns of a round beside its settings, name → [n]."""
        present = self.cohort if came is None else came
        return {"cohort": self.cohort, "summands": self.most, "participants": present}

    def bounded(self, view: str, replaced: bool = False) -> bool:
        """Say whether the norm bounds what one client adds: in sums, only if all weigh the same.

        A server that sees uploads and models knows the weights. They are taken to be known, so a
        client may be left out, but not replaced by one that holds more or less.
        """
        return self.weighting == "uniform" or (view == "server" and not replaced)

    def seen(self, view: str, replaced: bool = False) -> Seen | None:
        """Return what an onlooker sees; None where no noise hides it or nothing bounds it.

        replaced says whether any other client may stand in the place of one.
        """
        if self.noise is None or not self.bounded(view, replaced):
            return None
        noise = self.noise
        alone = view == "server" or not self.noise_last
        if alone and self.sampling == "poisson":  # if all come, each adds least
            noise = noise * share_of_noise(self.cohort, self.clients)
        return Seen(
            view,
            noise,
            self.norm * FLOAT32,
            self.cohort,
            self.clients,
            self.sampling,
            self.noise_last,
            self.centred,
        )


def on_the_sum(noise: Any, cohort: Any, sampling: str, lost: int = 0) -> Any:
    """Return the noise on the sum of a round that is sure to be there, if some is lost.

    noise is each client's where as many come as expected; lost is how many of those who come may
    fail to send, or tell their noise. Under Poisson sampling n clients share the noise of m, so
    that of n − lost is left; the least is that of n = lost + 1, the client to hide and the lost.
    """
    if sampling == "fixed":
        return noise * (cohort - lost) ** 0.5
    return noise * share_of_noise(cohort, lost + 1)


def stays_secret(
    sampling: str, dropouts: int, colluders: int, noise_last: bool, centred: bool
) -> bool:
    """Say whether models alone do not tell more of who took part than the accountants count.

    Secret sampling hides a client only if rounds with and without it have the same noise around the
    same place. Where clients fail to send, who fails may depend on who came. Colluders of a fixed
    cohort tell their own presence alone; under Poisson sampling they tell how many came, by the
    share of the noise that they add. And there an update of zero must be sent as zero.
    """
    if sampling == "fixed":
        return noise_last and dropouts == 0
    return noise_last and dropouts == 0 and colluders == 0 and centred


def share_of_noise(expected: Any, came: Any) -> Any:
    """Return by what each client multiplies its noise when so many came instead of those expected.

    The sum of a round then has the noise of the expected cohort, whoever came. Works on numbers,
    arrays and tensors.
    """
    return (expected / came) ** 0.5


def expected_cohorts(ratios: FloatArray, clients: int, sampling: str) -> FloatArray:
    """Return the expected cohort [n] of each sample ratio [n]."""
    return np.array([float(cohort(q, clients, sampling)) for q in ratios])
