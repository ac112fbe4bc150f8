"""Check what a mechanism must hold, and every capability that it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedpareto.errors import SettingError
from fedpareto.mechanisms import (
    KnowsCosts,
    LimitsSummands,
    Mechanism,
    NeedsEveryone,
    ThinsOut,
    Upload,
    adds_noise,
    noise_comes_last,
    states_loss,
)
from fedpareto.noise import Noise, stream
from fedpareto.testing.functions import frozen, numbers_of
from fedpareto.testing.sensitivity import check_noise, check_zero
from fedpareto.testing.stated import check_loss

if TYPE_CHECKING:
    from torch import Tensor


def check_mechanism(
    mechanism: Mechanism, R: int = 3, K: int = 4, P: int = 50, seed: int = 0
) -> None:
    """Check that a mechanism keeps shapes and its input, and treats each federation by itself.

    Where it adds Gaussian noise last, check that the noise hides what `gaussian` says: whatever one
    client sends, infinite or not, and that what is sent is all the noise leaves to see.
    """
    import torch

    assert frozen(mechanism), "a mechanism must be a frozen dataclass"
    values = {
        name: torch.linspace(0.5, 1.0, R) * scale for name, scale in numbers_of(mechanism).items()
    }
    sent = torch.randn(R, K, P, generator=stream(seed, "upload"))
    one = torch.ones(R, K)
    upload = Upload(sent, one * P, one * 32, one * 0)
    out = mechanism.protect(
        dataclasses.replace(upload, values=sent.clone()), values, Noise(seed, 0, range(K))
    )
    assert out.values.shape == sent.shape, (
        f"values must have shape {tuple(sent.shape)}, found {tuple(out.values.shape)}"
    )
    for name in ("count", "bits", "seconds"):
        got = getattr(out, name)
        assert got.shape == (R, K), f"{name} must have shape {(R, K)}, found {tuple(got.shape)}"
        assert bool((got >= 0).all()), f"{name} must not be negative, found {float(got.min())}"
    assert bool(torch.isfinite(out.values).all()), "values must be finite for a finite upload"
    again = mechanism.protect(upload, values, Noise(seed, 0, range(K)))
    assert torch.equal(out.values, again.values), "the same noise must give the same upload"
    assert torch.equal(upload.values, sent), "the upload that came in must be left as it was"
    turned = [*range(1, R), 0]
    other = mechanism.protect(
        Upload(sent[turned], one * P, one * 32, one * 0),
        {k: v[turned] for k, v in values.items()},
        Noise(seed, 0, range(K)),
    )
    assert torch.equal(out.values[turned], other.values), (
        "a federation must not depend on its neighbours or their order"
    )
    _check_capabilities(mechanism, values, R, K, P, seed)


def _check_capabilities(
    mechanism: Mechanism, values: dict[str, Tensor], R: int, K: int, P: int, seed: int
) -> None:
    """Check each capability that the mechanism claims by having its methods."""
    if not adds_noise(mechanism) and not states_loss(mechanism):
        check_zero(mechanism, values, R, K, P)
    elif noise_comes_last(mechanism):
        check_noise(mechanism, values, K, P, seed)
    stated = states_loss(mechanism)
    if stated is not None:
        check_loss(mechanism, stated, values, float(K), seed)
    if isinstance(mechanism, ThinsOut):
        _check_connections(mechanism, values, R, P, seed)
    if isinstance(mechanism, KnowsCosts):
        _check_costs(mechanism, mechanism, values, R, K, P, seed)
    if isinstance(mechanism, NeedsEveryone):
        assert isinstance(mechanism.joint, bool), f"joint must be a bool, found {mechanism.joint!r}"
    if isinstance(mechanism, LimitsSummands):
        for summands in (1, K, 10**6):
            try:
                mechanism.fits(summands)
            except SettingError:
                continue


def _check_connections(
    mechanism: ThinsOut, values: Mapping[str, Tensor], R: int, P: int, seed: int
) -> None:
    """Check that what stays in the models is one mask per federation, the same for equal draws."""
    import torch

    drawn = torch.rand(P, generator=stream(seed, "connections"))
    linear = torch.arange(P) % 2 == 0
    kept = mechanism.connections(values, drawn, linear)
    assert kept.shape == (R, P), f"connections must have shape {(R, P)}, found {tuple(kept.shape)}"
    assert kept.dtype == torch.bool, f"connections must be true or false, found {kept.dtype}"
    again = mechanism.connections(values, drawn, linear)
    assert torch.equal(kept, again), "the same draws must leave the same connections"


def _check_costs(
    mechanism: Mechanism,
    knowing: KnowsCosts,
    values: Mapping[str, Tensor],
    R: int,
    K: int,
    P: int,
    seed: int,
) -> None:
    """Check that costs known without values are those of a real upload."""
    import torch

    one = torch.ones(R, K)
    size = torch.full((R,), float(P))
    empty = Upload(torch.empty(R, K, 0), one * P, one * 32, one * 0, room=size)
    known = knowing.costs(empty, {"linear_parameters": size.double(), **values})
    if known is None:
        return
    sent = torch.randn(R, K, P, generator=stream(seed, "upload"))
    real = mechanism.protect(
        Upload(sent, one * P, one * 32, one * 0), values, Noise(seed, 0, range(K))
    )
    pairs = (
        ("bits", known.total_bits, real.total_bits),
        ("seconds", known.seconds, real.seconds),
        ("numbers", known.count, real.count),
    )
    for name, said, found in pairs:
        same = torch.allclose(said.double(), found.double())
        assert same, f"costs must tell the {name} of an upload, {found[0, 0]}, found {said[0, 0]}"
