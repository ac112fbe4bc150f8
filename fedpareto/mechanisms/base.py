"""What a client sends, and what a protection mechanism does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Upload:
    """What the server sees of R federations with K clients each, and what it cost to send."""

    values: Tensor  # [R,K,P]
    count: Tensor  # [R,K] numbers sent
    bits: Tensor  # [R,K] bits per number
    seconds: Tensor  # [R,K] client time spent on protection
    overhead: Tensor | None = None  # [R,K] bits sent beside the numbers and their places
    sent: Tensor | None = None  # [R,K,P] which numbers are sent; None for all
    # [R,K,P] where the client goes on with its own value next round; None for nowhere
    private: Tensor | None = None
    withheld: Tensor | None = None  # [R,K] size of the private values, μ of Kang 2023, Eq. 15
    # [R,K] bits the client receives; None for the model as 32-bit floats
    download: Tensor | None = None
    reading: Tensor | None = None  # [R,K] seconds a client takes to read what it receives
    adding: Tensor | None = None  # [R] seconds the server takes to add the uploads
    # [R] parameters of each federation's model, where values are left out; None: as many as exist
    room: Tensor | None = None

    # what both ends know already
    model: Tensor | None = None  # [R,P] the parameters that the round began with
    exists: Tensor | None = None  # [R,P] which parameters this federation's model has; None for all
    linear: Tensor | None = None  # [P] which are weights of fully connected layers; None for all

    @property
    def total_bits(self) -> Tensor:
        """Bits sent, [R,K]: numbers, their places where not all are sent, and the rest."""
        bits = self.count.double() * self.bits + self.index_bits
        return bits if self.overhead is None else bits + self.overhead

    @property
    def index_bits(self) -> Tensor:
        """Bits that say which numbers are sent, [R,K].

        A bitmap or a list of places, whichever is smaller.
        """
        import torch

        if self.sent is None:
            return torch.zeros_like(self.count, dtype=torch.float64)
        room = self.parameters[:, None].double()
        places = self.count.double() * room.clamp_min(2).log2().ceil()
        return torch.where(self.count >= room, 0.0, torch.minimum(room, places))

    @property
    def parameters(self) -> Tensor:
        """Parameters of each federation's model, [R]."""
        import torch

        if self.room is not None:
            return self.room
        if self.exists is None:
            R, _, P = self.values.shape
            return torch.full((R,), float(P), device=self.values.device)
        return self.exists.sum(1).float()

    def dense(self, values: Tensor) -> Upload:
        """Return an upload of these values, every one sent as a 32-bit float."""
        count = self.parameters[:, None].expand_as(self.count)
        return replace(self, values=values, count=count, bits=self.bits * 0 + 32, sent=None)

    def without(self, dropped: Tensor) -> Upload:
        """Return the upload without these numbers [R,K,P]: the server takes them for zero."""
        kept = ~dropped if self.sent is None else self.sent & ~dropped
        if self.exists is not None:
            kept = kept & (self.exists > 0)[:, None]
        return replace(self, values=self.values * kept, sent=kept, count=kept.sum(2).float())

    def lighter(self, dropped: Tensor) -> Upload:
        """Return an upload that sends so many numbers [R] fewer, whichever they are.

        It is for an upload whose values are left out.
        """
        count = (self.parameters.double() - dropped).float()[:, None].expand_as(self.count)
        return replace(self, sent=self.values > 0, count=count)


@runtime_checkable
class Mechanism(Protocol):
    """A frozen dataclass of settings that says how clients protect what they send.

    What else it may do, such as adding Gaussian noise, is in `capabilities`.
    """

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        """Return the protected upload.

        values holds every float and int setting of the mechanism, name → [R], searched or fixed.
        Draws from noise are [K,P], without R: federations of one repeat share their random numbers.
        """


def each(column: Tensor) -> Tensor:
    """Return a setting [R] as [R,1,1], to broadcast with uploads [R,K,P]."""
    return column[:, None, None]


def smallest(size: Tensor, share: Tensor, among: Tensor | None) -> Tensor:
    """Mark the smallest share [R] of the entries of size [R,K,P].

    Only entries that are among [R,P] count, all where among is None: of n such entries exactly
    ⌊share·n⌋ are marked. Of equal entries the first are.
    """
    import torch

    out = torch.zeros_like(size, dtype=torch.bool)
    if among is None:
        count = torch.full_like(share, size.shape[2], dtype=torch.float64)
    else:
        count = (among != 0).sum(1).double()
    for r, k in enumerate(portion(share, count).tolist()):
        if among is None:
            out[r] = _lowest(size[r], int(k))
        else:
            places = among[r].nonzero()[:, 0]
            out[r, :, places] = _lowest(size[r][:, places], int(k))
    return out


def portion(share: Tensor, count: Tensor) -> Tensor:
    """Return how many of count numbers [R] a share [R] of them is, rounded down."""
    # a share of 0.3 is not quite 0.3 in float32, hence the little more
    return (share.double() * count * (1 + 1e-7)).floor().minimum(count)


def _lowest(size: Tensor, k: int) -> Tensor:
    """Mark the k smallest entries in each row of size [K,P]."""
    import torch

    if k == 0:
        return torch.zeros_like(size, dtype=torch.bool)
    edge = size.kthvalue(k, dim=1, keepdim=True).values
    below = size < edge
    at_edge = size == edge
    missing = k - below.sum(1, keepdim=True)
    return below | (at_edge & (at_edge.cumsum(1) <= missing))


def subject(upload: Upload, of: str) -> Tensor:
    """Return what a mechanism works on: the update, or the parameters that the update leads to."""
    if of == "update" or upload.model is None:
        return upload.values
    return upload.values + upload.model[:, None]


def restored(upload: Upload, values: Tensor, of: str) -> Tensor:
    """Return what `subject` gave, now protected, as an update again."""
    if of == "update" or upload.model is None:
        return values
    return values - upload.model[:, None]


OF: dict[str, Any] = {"options": ("update", "parameters"), "search": False}
OF_HELP = "what is protected: the client's update, or its parameters as the papers print it"
