"""Sum the gradients of single records, each scaled down to a norm, mostly without writing them.

A layer's gradient for a record follows from what it took, a, and from the slope s of the loss with
what it gave. For a linear layer it is s aᵀ, so its norm is that of a times that of s (Goodfellow
2015); for a convolution it is the sum of s aᵀ over places, written down or, if that is smaller, its
norm worked out by two matrices of products between places (Bu et al. 2022). So one pass forward and
one back give all norms, and one weighted product a layer the sum.

Letters: M slots, R federations, B records, C channels given, D channels taken, L places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F

from fedpareto.federation.grouped import Grouped, GroupedLinear, Params
from fedpareto.federation.layers import GroupedConv2d, GroupedNorm, Tap
from fedpareto.federation.losses import Loss
from fedpareto.federation.stack import Stack

# By how much more a record is scaled down than its norm asks for: what sums of 32-bit numbers may
# miss of a norm, and what TF32 takes off each factor of a product (2⁻¹¹, twice).
ROUNDING = 2e-6
ROUNDING_TF32 = 1e-3
# what 32 bits may miss of a sum of products of both signs, as a share of the products' sizes
CANCELLED = 5e-7
ROOM = 2**28  # bytes that gradients of single records may take at a time; on a GPU eight times that
# bytes of what convolutions took that are written down at a time on a CPU: larger memory is asked
# for anew each time, and the caches do not hold it
PIECE = 2**22


def add_clipped(
    totals: Params,
    stack: Stack,
    params: Params,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    loss: Loss,
    norm: Tensor,
) -> None:
    """Add to totals [M,R,...], in place, the weighted sum of records' clipped gradients.

    x is [B,M,...], y [B,M], weight [B,M] or [B,M,R]; a record of weight 0 is not there. norm [R] is
    the largest norm of a record's gradient. A record whose gradient is not finite counts as zero.
    totals may be params.
    """
    fast = stack.fast
    if fast is None or not _by_layers(totals, fast, params, x, y, weight, loss, norm):
        _one_by_one(totals, stack, params, x, y, weight, loss, norm)


def shares(squares: Tensor, weight: Tensor, norm: Tensor, rounding: float) -> Tensor:
    """Return by what each record's gradient is multiplied, [M,R,B], from its squared norm."""
    allowed = norm[:, None] * (1 - rounding)
    each = weight.view(*weight.shape[:2], -1).permute(1, 2, 0)  # [M,1 or R,B]
    share = (allowed / squares.sqrt()).clamp_max(1.0) * each
    return torch.where(squares.isfinite(), share, 0.0)


def rounding_of(x: Tensor) -> float:
    """Return how far products and norms may be off on this device, as they are set to round."""
    if x.is_cuda and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32):
        return ROUNDING_TF32
    return ROUNDING


def _by_layers(
    totals: Params,
    fast: Grouped,
    params: Params,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    loss: Loss,
    norm: Tensor,
) -> bool:
    """Add the sums by what layers took and gave; say no where a layer is called twice."""
    scores, taps = fast.tapped(params, x)
    if len({id(tap.layer) for tap in taps}) < len(taps):
        return False
    slopes = _slopes(scores, taps, loss.slope(scores.detach(), y.t()))
    with torch.no_grad():
        models = params[0].shape[:2]
        made = [RULES[type(tap.layer)](tap, slope, models) for tap, slope in slopes]
        squares = torch.stack([each.squares() for each in made]).sum(0)
        share = shares(squares, weight, norm, rounding_of(x))
        whole = not x.is_cuda and bool(squares.isfinite().all())
        for each in made:
            each.add(share, whole, *fast.of_layer(totals, each.tap.layer))
    return True


def _slopes(scores: Tensor, taps: Sequence[Tap], slope: Tensor) -> list[tuple[Tap, Tensor]]:
    """Return the slope of each record's loss with what each layer gave, where that was used."""
    outs = [tap.out for tap in taps]
    found = torch.autograd.grad(scores, outs, slope, allow_unused=True)
    return [(tap, s) for tap, s in zip(taps, found, strict=True) if s is not None]


def finite(values: Tensor, whole: bool) -> Tensor:
    """Return values with zeros for what is not finite: nothing times that is not zero."""
    return values if whole else values.nan_to_num(0.0, 0.0, 0.0)


@dataclass
class LinearRecords:
    """The gradients of a linear layer's records: s aᵀ, and s for the bias."""

    tap: Tap
    slope: Tensor  # [B,G·C]
    models: tuple[int, int]  # M, R

    def __post_init__(self) -> None:
        M, R = self.models
        self.inputs = _by_model(self.tap.inputs, self.tap.layer.weight.shape[-1])  # [M or G,D,B]
        self.slopes = self.slope.t().reshape(M, R, -1, self.slope.shape[0])  # [M,R,C,B]

    def squares(self) -> Tensor:
        """Return the squared norm of each record's gradient, [M,R,B]."""
        M, _ = self.models
        taken = _squared(self.inputs, 1).view(M, -1, self.inputs.shape[2])  # [M,1 or R,B]
        if self.tap.layer.bias is not None:
            taken = taken + 1
        return taken * _squared(self.slopes, 2)

    def add(self, share: Tensor, whole: bool, weight: Tensor, bias: Tensor | None) -> None:
        """Add the gradients, each times its share [M,R,B], to totals [M,R,...]."""
        slopes = finite(self.slopes, whole) * share[:, :, None]
        inputs = finite(self.inputs, whole)
        rows = slopes.view(inputs.shape[0], -1, slopes.shape[3])
        weight.view(inputs.shape[0], -1, weight.shape[3]).baddbmm_(rows, inputs.transpose(1, 2))
        if bias is not None:
            bias += slopes.sum(3)


@dataclass
class ConvRecords:
    """The gradients of a convolution's records: the sum of s aᵀ over places."""

    tap: Tap
    slope: Tensor  # [B,G·C,H,W]
    models: tuple[int, int]

    def __post_init__(self) -> None:
        M, R = self.models
        layer, x = self.tap.layer, self.tap.inputs
        self.B = len(x)
        weight = layer.weight  # [M,R,C,D,h,w]
        self.wide = weight[0, 0, 0].numel()  # D·h·w
        self.channels = weight.shape[2]
        self.groups = x.shape[1] // weight.shape[3]  # M or G
        self.slopes = self.slope.flatten(2).view(self.B, M, R, self.channels, -1)  # [B,M,R,C,L]
        self.places = self.slopes.shape[4]
        written = self.channels * self.wide
        products = self.places * (self.wide + self.channels)
        self.by_products = products < written
        size = self.wide * self.places * self.groups
        size += (2 * self.places**2 if self.by_products else written) * M * R
        room = ROOM * 8 if x.is_cuda else min(ROOM, PIECE)
        self.at_once = max(1, int(room / (4 * size)))
        room = ROOM * 8 if x.is_cuda else ROOM
        self.holds = not self.by_products and 4 * written * M * R * self.B <= room
        self.held: list[Tensor] = []  # the gradients, if all fit

    def _pieces(self) -> Sequence[slice]:
        starts = range(0, self.B, self.at_once)
        return [slice(start, min(start + self.at_once, self.B)) for start in starts]

    def _taken(self, piece: slice) -> Tensor:
        """Return what each place of some records took, [b,M,1 or R,D·h·w,L]."""
        layer, x = self.tap.layer, self.tap.inputs[piece]
        M, _ = self.models
        (h, w), (down, right) = layer.padding, layer.stride
        padded = F.pad(x, (w, w, h, h)).contiguous() if h or w else x.contiguous()
        images = padded.view(-1, layer.weight.shape[3], *padded.shape[2:])
        image, channel, line, one = images.stride()
        shape = (*images.shape[:2], *layer.weight.shape[4:], *self.slope.shape[2:])
        apart = (line * layer.dilation[0], one * layer.dilation[1], line * down, one * right)
        # a view in which numbers come again; several times as fast as torch's unfold
        found = images.as_strided(shape, (image, channel, *apart))
        return found.reshape(len(x), M, -1, self.wide, self.places)

    def _written(self, piece: slice) -> Tensor:
        """Return the gradients of some records, [b,M,R,C,D·h·w]."""
        taken, slopes = self._taken(piece), self.slopes[piece]
        if taken.shape[2] == 1:  # the federations of a slot share it: one product
            return (slopes.flatten(2, 3) @ taken[:, :, 0].transpose(2, 3)).view(
                *slopes.shape[:4], self.wide
            )
        return slopes @ taken.transpose(3, 4)

    def _between(self, piece: slice) -> Tensor:
        """Return squared norms [b,M,R] by the products between places, rounded up."""
        taken, slopes = self._taken(piece), self.slopes[piece]
        a = taken.transpose(3, 4) @ taken  # [b,M,1 or R,L,L]
        s = slopes.transpose(3, 4) @ slopes
        sizes = _diagonal(a) * _diagonal(s)  # [b,M,R,L]
        missed = CANCELLED * sizes.clamp_min(0).sqrt().sum(3).square()
        return (a * s).sum((3, 4)).clamp_min(0) + missed

    def squares(self) -> Tensor:
        """Return the squared norm of each record's gradient, [M,R,B]."""
        found = []
        for piece in self._pieces():
            if self.by_products:
                found.append(self._between(piece))
                continue
            written = self._written(piece)
            found.append(_squared(written.flatten(3), 3))
            if self.holds:
                self.held.append(written)
        squares = torch.cat(found)
        if self.tap.layer.bias is not None:
            squares = squares + _squared(self.slopes.sum(4), 3)
        return squares.permute(1, 2, 0)

    def add(self, share: Tensor, whole: bool, weight: Tensor, bias: Tensor | None) -> None:
        """Add the gradients, each times its share [M,R,B], to totals [M,R,...]."""
        M, R = self.models
        slopes = finite(self.slopes, whole) * share.permute(2, 0, 1)[..., None, None]
        if bias is not None:
            bias += slopes.sum((0, 4))
        if self.held:
            for piece, held in zip(self._pieces(), self.held, strict=True):
                written = finite(held, whole).view(len(held), M * R, -1).transpose(0, 1)
                mine = share[:, :, piece].reshape(M * R, 1, len(held))
                weight.view(M * R, 1, -1).baddbmm_(mine, written)
            return
        layer = self.tap.layer
        found = nn.grad.conv2d_weight(  # type: ignore[no-untyped-call]
            finite(self.tap.inputs, whole),
            (M * R * self.channels, *layer.weight.shape[3:]),
            slopes.reshape(self.slope.shape),
            layer.stride,
            layer.padding,
            layer.dilation,
            self.groups,
        )
        weight += found.view(weight.shape)


@dataclass
class NormRecords:
    """The gradients of a group norm's records: s · a for the weights, s for the biases."""

    tap: Tap
    slope: Tensor  # [B,G·C,...]
    models: tuple[int, int]

    def __post_init__(self) -> None:
        shape = (len(self.slope), *self.models, -1)
        self.bias = self.slope.flatten(2).sum(2).view(shape)  # [B,M,R,C]
        self.weight = (self.slope * self.tap.inputs).flatten(2).sum(2).view(shape)

    def squares(self) -> Tensor:
        """Return the squared norm of each record's gradient, [M,R,B]."""
        return (_squared(self.weight, 3) + _squared(self.bias, 3)).permute(1, 2, 0)

    def add(self, share: Tensor, whole: bool, weight: Tensor, bias: Tensor | None) -> None:
        """Add the gradients, each times its share [M,R,B], to totals [M,R,C]."""
        each = share.permute(2, 0, 1)[..., None]
        weight += (finite(self.weight, whole) * each).sum(0)
        assert bias is not None  # a group norm has both or neither
        bias += (finite(self.bias, whole) * each).sum(0)


RULES: dict[type[nn.Module], Callable[[Tap, Tensor, Any], Any]] = {
    GroupedLinear: LinearRecords,
    GroupedConv2d: ConvRecords,
    GroupedNorm: NormRecords,
}


def _by_model(x: Tensor, width: int) -> Tensor:
    """Return activations [B,Q·D] as [Q,D,B]."""
    return x.reshape(len(x), -1, width).permute(1, 2, 0)


def _squared(values: Tensor, dim: int) -> Tensor:
    """Return the sums of squares along a dimension."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=dim)
    return norms.square()


def _diagonal(products: Tensor) -> Tensor:
    return products.diagonal(dim1=3, dim2=4)


def _one_by_one(
    totals: Params,
    stack: Stack,
    params: Params,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    loss: Loss,
    norm: Tensor,
) -> None:
    """Add the sums by writing down every record's gradient, some records at a time."""
    fixed = [p.detach().clone() for p in params]  # totals may be params
    M, R = fixed[0].shape[:2]
    room = ROOM * 8 if x.is_cuda else ROOM
    at_once = max(1, int(room / (8 * stack.size * M * R)))

    def score(p: Params, one: Tensor, slope: Tensor) -> Tensor:
        return (stack.alone(p, one[None])[0] * slope).sum()

    # models of a slot share records: [b,...], with slopes [b,C] of their own
    of_record = vmap(grad(score), in_dims=(None, 0, 0))
    of_model = vmap(vmap(of_record, in_dims=(0, None, 0)))
    for start in range(0, len(x), at_once):
        part = slice(start, start + at_once)
        with torch.no_grad():
            scores = stack.scores(fixed, x[part])
            slope = loss.slope(scores, y[part].t()).permute(0, 1, 3, 2)  # [M,R,b,C]
        gradients = of_model(fixed, x[part].transpose(0, 1).contiguous(), slope.contiguous())
        with torch.no_grad():
            squares = torch.stack([_squared(g.flatten(3), 3) for g in gradients]).sum(0)
            share = shares(squares, weight[part], norm, rounding_of(x))
            for total, g in zip(totals, gradients, strict=True):
                total += torch.einsum("mrb,mrb...->mr...", share, finite(g, False))
