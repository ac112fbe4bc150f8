"""What a mechanism may do beyond protecting an upload; each is asked for by isinstance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedpareto.mechanisms.base import Mechanism, Upload
from fedpareto.mechanisms.none import Unprotected

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from torch import Tensor


@runtime_checkable
class AddsGaussian(Protocol):
    """It adds Gaussian noise, from which a true (ε, δ) follows."""

    def gaussian(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the noise on every coordinate and the largest L2 norm of what it hides, each [R].

        values holds the settings, name → [R], and `cohort`, the clients expected in a round. Where
        `participants` came instead, each multiplies its noise by `contract.share_of_noise`. An
        attribute `of = "parameters"` says that it hides the client's parameters, and not its
        update: then a client left out still moves what is sent.
        """


@runtime_checkable
class StatesLoss(Protocol):
    """It hides an upload by other than Gaussian noise, and says how well, from which ε follows.

    It must stand alone: in a chain nothing is promised of it.
    """

    def privacy_loss(
        self, values: Mapping[str, float], replace: bool
    ) -> PrivacyLossDistribution | None:
        """Return the privacy loss of one client's upload in one round; None if nothing is promised.

        values holds the settings of one point, and `cohort`, the clients expected in a round. The
        loss must be pessimistic and hold for whatever a client sends, beside an update of zero or,
        with replace, beside that of any other.
        """


@runtime_checkable
class ThinsOut(Protocol):
    """It takes parameters out of the models, for good."""

    def connections(self, values: Mapping[str, Tensor], drawn: Tensor, linear: Tensor) -> Tensor:
        """Return which parameters stay, [R,P].

        drawn [P] is uniform between 0 and 1; linear [P] marks weights of fully connected layers.
        """


@runtime_checkable
class NeedsEveryone(Protocol):
    """It needs all clients of a round at once, where joint is true."""

    @property
    def joint(self) -> bool: ...


@runtime_checkable
class LimitsSummands(Protocol):
    """It cannot sum any number of clients."""

    def fits(self, summands: int) -> None:
        """Raise SettingError where so many uploads cannot be summed."""


@runtime_checkable
class KnowsCosts(Protocol):
    """Its bytes and seconds follow from the settings, so that they are known before training."""

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload | None:
        """Return what protect says of count, bits, seconds and the rest; None if it cannot say.

        The upload has room and no values [R,K,0]. values holds `linear_parameters` as well: how
        many weights of fully connected layers each model has.
        """


@runtime_checkable
class Encrypts(Protocol):
    """It can run its encryption for real, and not only charge for it."""

    @property
    def encrypt(self) -> bool: ...


@runtime_checkable
class Linked(Protocol):
    """It is several mechanisms, one after another."""

    @property
    def links(self) -> tuple[Mechanism, ...]: ...


def links_of(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    """Return the links of a chain, those of chains within it too, or the mechanism alone."""
    if not isinstance(mechanism, Linked):
        return (mechanism,)
    return tuple(inner for link in mechanism.links for inner in links_of(link))


def adds_noise(mechanism: Mechanism) -> bool:
    """Say whether a mechanism, or a link of a chain, adds Gaussian noise."""
    return any(isinstance(link, AddsGaussian) for link in links_of(mechanism))


def states_loss(mechanism: Mechanism) -> StatesLoss | None:
    """Return the mechanism as one that states its privacy loss; None where it does not."""
    return mechanism if isinstance(mechanism, StatesLoss) and not adds_noise(mechanism) else None


def noise_comes_last(mechanism: Mechanism) -> bool:
    """Say whether uploads are sent as they are once noise is added, by one link alone.

    Otherwise sums of uploads do not have Gaussian noise.
    """
    links = [link for link in links_of(mechanism) if not isinstance(link, Unprotected)]
    noisy = [isinstance(link, AddsGaussian) for link in links]
    return sum(noisy) == 1 and noisy[-1]


def hides_updates(mechanism: Mechanism) -> bool:
    """Say whether noise hides the update; if not, an update of zero is not sent as zero.

    It is not where the noise, or a link before it, works on parameters, nor where a link before it
    adds noise of its own.
    """
    links = links_of(mechanism)
    noisy = [place for place, link in enumerate(links, 1) if isinstance(link, AddsGaussian)]
    before = links[: max(noisy, default=0)]
    if any(isinstance(link, StatesLoss) for link in before):
        return False
    return all(getattr(link, "of", "update") == "update" for link in before)


def needs_everyone(mechanism: Mechanism) -> bool:
    """Say whether a mechanism needs all clients of a round at once."""
    return isinstance(mechanism, NeedsEveryone) and mechanism.joint


def thins_out(mechanism: Mechanism) -> bool:
    """Say whether a mechanism, or a link of a chain, takes parameters out of the models."""
    return any(isinstance(link, ThinsOut) for link in links_of(mechanism))
