"""Mechanisms for many clients at once equal the plain ones of examples/protect_by_hand.py."""

from __future__ import annotations

import numpy as np
import protect_by_hand as by_hand
import pytest
import torch

from fedpareto.mechanisms import Chain, Pruning, Quantization, Randomization, Sparsification, Upload
from fedpareto.noise import Noise

R, K, P = 3, 4, 60
LINEAR = torch.arange(P) < 45


def made(seed=0):
    draw = torch.Generator().manual_seed(seed)
    one = torch.ones(R, K)
    return Upload(torch.randn(R, K, P, generator=draw), one * P, one * 32, one * 0, model=torch.randn(R, P, generator=draw), linear=LINEAR)


def columns(**settings):
    return {name: torch.tensor(values) for name, values in settings.items()}


def noise():
    return Noise(7, 2, range(K))


def compare(out, hand):
    """Compare with hand(r, k, update, model) → (values, bits, ...) client by client."""
    upload = made()
    for r in range(R):
        for k in range(K):
            values, bits, *_ = hand(r, k, upload.values[r, k].double().numpy(), upload.model[r].double().numpy())
            np.testing.assert_allclose(out.values[r, k].numpy(), values, rtol=1e-6, atol=1e-6)
            assert float(out.total_bits[r, k]) == bits


@pytest.mark.parametrize("of", ["update", "parameters"])
@pytest.mark.parametrize("clipping", ["norm", "printed"])
def test_randomization(of, clipping):
    sigma, clip = [0.0, 0.1, 2.0], [0.5, 4.0, 100.0]
    out = Randomization(0.1, of=of, clipping=clipping).protect(made(), columns(sigma=sigma, clipping_norm=clip), noise())
    normal = noise().normal(P).double().numpy()
    compare(out, lambda r, k, u, w: by_hand.randomize(u, sigma[r], clip[r], normal[k], w, of, clipping))


def test_sparsification_keeps_the_smallest_updates_and_their_places():
    share = [0.0, 0.3, 0.99]
    out = Sparsification().protect(made(), columns(connection_probability=[1.0] * R, private_fraction=share), noise())
    compare(out, lambda r, k, u, w: by_hand.keep_private(u, share[r]))
    private = by_hand.keep_private(made().values[1, 2].double().numpy(), 0.3)[2]
    assert set(out.private[1, 2].nonzero()[:, 0].tolist()) == private
    here = (made().values[1, 2] + made().model[1])[sorted(private)]
    assert float(out.withheld[1, 2]) == pytest.approx(float(here.norm()), rel=1e-6)


@pytest.mark.parametrize("of", ["update", "parameters"])
@pytest.mark.parametrize("settings", [{"prune_rate": [0.0, 0.5, 0.9]}, {"threshold": [0.0, 0.7, 9.0]}])
def test_pruning(of, settings):
    name, given = next(iter(settings.items()))
    out = Pruning(**{name: 0.1}, of=of).protect(made(), columns(**settings), noise())
    compare(out, lambda r, k, u, w: by_hand.prune(u, LINEAR.numpy(), **{name: given[r]}, model=w, of=of))


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_quantization(rounding):
    bits = [1.0, 8.0, 32.0]
    out = Quantization(8, rounding).protect(made(), columns(bits=bits), noise())
    uniform = noise().uniform(P).double().numpy()
    compare(out, lambda r, k, u, w: by_hand.quantize(u, int(bits[r]), uniform[k] if rounding == "stochastic" else None))


def test_a_chain_of_three():
    sigma, clip, rate, bits = [0.1, 0.2, 0.3], [1.0, 4.0, 9.0], [0.2, 0.5, 0.9], [2.0, 4.0, 8.0]
    chain = Chain((Randomization(0.1), Pruning(0.5), Quantization(8)))
    out = chain.protect(made(), columns(sigma=sigma, clipping_norm=clip, prune_rate=rate, bits=bits), noise())
    normal = noise().normal(P).double().numpy()

    def hand(r, k, update, model):
        noisy, _ = by_hand.randomize(update, sigma[r], clip[r], normal[k])
        thin, _, dropped = by_hand.prune(noisy, LINEAR.numpy(), prune_rate=rate[r])
        return by_hand.quantize(thin, int(bits[r]), dropped=dropped)

    compare(out, hand)
