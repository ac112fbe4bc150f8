"""What may look on while federations train, and step in: attacks, audits and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.split import Indices

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.mechanisms import Upload


@runtime_checkable
class Observer(Protocol):
    """Sees what each view sees, and may change who comes, what they hold and what they trained.

    Inherit from it and override what you need: every method here leaves things as they are. A
    repeat is a number from 0 to S − 1, a round from 0. Tensors must not be changed in place.
    """

    def cohort(self, repeat: int, round: int, cohort: Cohort) -> Cohort:
        """Return who takes part in a round: force clients in, or leave them out."""
        return cohort

    def records(self, repeat: int, client: int, records: Indices) -> Indices:
        """Return the training images of a client: leave some out. At least one must be left."""
        return records

    def updates(self, repeat: int, round: int, clients: Indices, updates: Tensor) -> Tensor:
        """Return what these clients trained, [R,M,P], before it is protected: plant an update."""
        return updates

    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        """See what the server sees of these clients (view server); takes_part [R,M] says of whom.

        Of a mechanism that encrypts, values are the decrypted mean: the server sees ciphertexts.
        """

    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        """See the weighted sums [S,R,P] of a round and who took part (view secagg)."""

    def models(self, round: int, models: Tensor) -> None:
        """See the models [S,R,P] after a round (view release)."""
