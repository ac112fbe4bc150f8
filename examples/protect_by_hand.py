"""Every mechanism written by hand: one client, one plain vector, one number after another.

This is what fedpareto's mechanisms do for many federations and clients at once, for reading and as
the oracle of their tests. A client has its update and the model that the round began with; it
returns what the server sees and how many bits that took.

Run it: python examples/protect_by_hand.py
"""

from __future__ import annotations

import math

import numpy as np


def randomize(update, sigma, clipping_norm, normal, model=None, of="update", clipping="norm"):
    """Clip to clipping_norm and add sigma times normal numbers.

    Kang 2023, RD; Gu 2024, Algorithm 1; Xiao 2025, Eq. 4.
    """
    sent = _sent(update, model, of)
    norm = math.sqrt(sum(float(v) ** 2 for v in sent))
    if clipping == "norm":
        over = norm / clipping_norm
    else:
        over = norm**2 / clipping_norm
    noisy = sent / max(1.0, over) + sigma * normal
    return _update(noisy, model, of), 32 * len(update)


def keep_private(update, private_fraction):
    """Keep the smallest share of the updates at the client (Kang 2023, SF); return which, too."""
    private = set(_smallest(update, private_fraction, range(len(update))))
    sent = np.array([0.0 if i in private else v for i, v in enumerate(update)])
    count = len(update) - len(private)
    return sent, 32 * count + _index_bits(count, len(update)), private


def prune(update, linear, prune_rate=None, threshold=None, model=None, of="update"):
    """Drop small weights of fully connected layers (Xiao 2025, Eq. 2).

    A share of them is dropped, or those below a threshold.
    """
    sent = _sent(update, model, of)
    weights = [i for i in range(len(sent)) if linear[i]]
    if threshold is None:
        dropped = set(_smallest(sent, prune_rate, weights))
    else:
        dropped = {i for i in weights if abs(sent[i]) < threshold}
    thin = np.array([0.0 if i in dropped else v for i, v in enumerate(sent)])
    count = len(sent) - len(dropped)
    return _update(thin, model, of), 32 * count + _index_bits(count, len(sent)), dropped


def quantize(update, bits, uniform=None, dropped=()):
    """Round to one of 2^bits levels between least and most (Xiao 2025, Eq. 3).

    With uniform numbers values round at random, so that the mean is kept.
    """
    there = [i for i in range(len(update)) if i not in dropped]
    low = min(update[i] for i in there)
    high = max(update[i] for i in there)
    levels = 2**bits - 1
    out = np.array(update, dtype=float)
    for i in there:
        if high > low and bits < 32:
            place = (update[i] - low) / (high - low) * levels
            if uniform is None:
                level = round(place)
            else:
                level = min(math.floor(place + uniform[i]), levels)
            out[i] = low + level / levels * (high - low)
    scales = 64 if bits < 32 else 0
    return out, bits * len(there) + _index_bits(len(there), len(update)) + scales


def _sent(update, model, of):
    """Return what a mechanism of updates or of whole models works on."""
    if of == "update":
        return update
    return update + model


def _update(sent, model, of):
    """Return the update that the server reads from what was sent."""
    if of == "update":
        return sent
    return sent - model


def _smallest(values, share, among):
    """Return the places of the smallest share of the values; of equal values the first."""
    count = math.floor(share * len(among) + 1e-6)
    return sorted(among, key=lambda i: (abs(values[i]), i))[:count]


def _index_bits(count, room):
    """Return the bits that say which numbers are sent: a bitmap or a list, whichever is smaller."""
    if count == room:
        return 0
    return min(room, count * math.ceil(math.log2(max(room, 2))))


def main() -> None:
    rng = np.random.default_rng(0)
    update = rng.normal(0, 0.1, 1000)
    linear = np.arange(1000) < 900
    sent, bits = randomize(update, sigma=0.01, clipping_norm=4.0, normal=rng.normal(size=1000))
    print(f"randomized  {bits:6d} bits, off by {np.abs(sent - update).max():.4f} at most")
    sent, bits, dropped = prune(sent, linear, prune_rate=0.5)
    print(f"pruned      {bits:6d} bits, {len(dropped)} numbers dropped")
    sent, bits = quantize(sent, 8, dropped=dropped)
    print(f"quantized   {bits:6d} bits, off by {np.abs(sent - update).max():.4f} at most")


if __name__ == "__main__":
    main()
