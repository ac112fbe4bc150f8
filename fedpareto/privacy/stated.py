"""The ε of mechanisms that state their own privacy loss, round by round.

It is that of whoever sees every upload of a client that takes part in all rounds. Sums and models
are made of uploads, so it holds for whoever sees those too: neither the noise of other clients nor
that clients are drawn by chance is counted.
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedpareto.privacy.accounting import Privacy
from fedpareto.privacy.statement import Guarantee, check

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ROUNDING = 1 + 1e-9  # of the composition
OWN_WORD = (
    "The privacy loss of an upload is what the mechanism says of itself: check_mechanism tries it "
    "on some updates, and proves nothing."
)
NO_MORE = (
    "Sums and models are made of uploads, so the ε of uploads holds for them too; the noise of "
    "other clients, and that clients are drawn by chance, are not counted."
)


def replaces(privacy: Privacy, of: str) -> bool:
    """Say whether the loss must be that beside any other update, and not one of zero.

    A record changes an update to another; what is done to parameters does not send zero as zero.
    """
    return privacy.adjacency == "replace" or privacy.unit == "record" or of != "update"


def stated_epsilon(loss: PrivacyLossDistribution | None, rounds: int, delta: float) -> float:
    """Return ε of so many rounds of a stated loss, rounded up; infinite where none is stated."""
    if loss is None:
        return math.inf
    return float(loss.self_compose(rounds).get_epsilon_for_delta(delta)) * ROUNDING


def stated_guarantee(
    privacy: Privacy,
    loss: PrivacyLossDistribution | None,
    *,
    name: str,
    of: str,
    rounds: int,
    clients: int,
    cohort: float,
    sampling: str,
    view: str,
) -> Guarantee | None:
    """Return the promise of a mechanism that states its loss; None where it promises nothing."""
    delta = privacy.delta(clients)
    epsilon = stated_epsilon(loss, rounds, delta)
    if not math.isfinite(epsilon):
        return None
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=privacy.unit,
        adjacency="replace" if replaces(privacy, of) else privacy.adjacency,
        sampling=sampling,
        view=view,
        accountant=f"the loss that {name} states, dp-accounting {version('dp-accounting')}",
        clients=clients,
        cohort=cohort,
        rounds=rounds,
        noise_multiplier=math.nan,
        notes=(*check(privacy, clients), OWN_WORD, *((NO_MORE,) if view != "server" else ())),
        counted="an upload of the same client each",
    )
