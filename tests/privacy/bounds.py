"""A lower bound on ε that shares no code with the accountants under test.

One round is a pair (P, Q) with R = dP/dQ. All that counts of it is δ(c) = E_Q[(R − c)₊], convex in
c = e^ε. Any measure on R whose δ(c) lies below the pair's for every c gives a lower bound for one
round, and products of such measures for many. Here it is a chain of lines: over each cell of an
even grid of log c the line lies below the tangent at the cell's middle. So the bound is of second
order in the step. The T-fold sum is taken by repeated squaring of positive numbers tilted by e^{θL};
the rounding of each FFT is subtracted, and what turns negative is dropped, which lowers δ too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

Array = np.ndarray
Profile = Callable[[Array], tuple[Array, Array]]
ACCURACY = 1e-3  # how much of ε the grid may take away
ROUND = 1 << 17  # most cells of one round
SUM = 1 << 18  # most cells of the sum


@dataclass(frozen=True)
class Pair:
    """One ordered pair (P, Q): its δ as a function of log c, relatively accurate on either side of c = 1."""

    call: Profile  # log c ≥ 0 → E_Q[(R − c)₊], c Q(R > c)
    put: Profile  # log c ≤ 0 → E_Q[(c − R)₊], c Q(R < c)
    low: float  # the losses worth a grid
    high: float
    spare: float  # relative rounding of call and put, with room
    bulk: str  # where most of Q or P lies in a point or nearly: "low", "high" or "middle"
    loss: Callable[[Array], Array]  # an outcome, in standard deviations of the noise → its loss
    density: Callable[[Array], Array]  # an outcome → its density under P


def mills(y: Array) -> Array:
    """Return Φ(−y)/φ(y)."""
    return math.sqrt(math.pi / 2) * erfcx(y / math.sqrt(2))


def normal(x: Array) -> Array:
    """Return the standard normal density."""
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def gaussian_call(u: Array, z: float) -> Array:
    """Return δ of N(1/z) against N(0) at ε = u ≥ 0."""
    a = 0.5 / z - u * z
    rest = normal(a) * mills(1 / z - a)
    return np.where(a < 0, normal(a) * mills(np.maximum(-a, 0.0)) - rest, ndtr(a) - rest)


def own_loss(loss: Array, q: float) -> Array:
    """Return u with log(1 − q + q e^u) = loss; −∞ below its range."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 600.0)) / q, -1.0))
    return np.where(loss > 600, loss - math.log(q), small)


def mixed_loss(u: Array, q: float) -> Array:
    """Return log(1 − q + q e^u), accurate where it is small."""
    return np.where(u > 600, u + math.log(q), np.log1p(q * np.expm1(np.minimum(u, 600.0))))


def swapped_put(call: Profile) -> Profile:
    """Return the put of the pair swapped: c E_Q[(R − 1/c)₊] and c P(R > 1/c)."""

    def put(loss: Array) -> tuple[Array, Array]:
        value, above = call(-loss)
        return np.exp(loss) * value, np.exp(loss) * (value + above)

    return put


def removed(z: float, q: float) -> tuple[Profile, Profile]:
    """Return call and put of ((1−q)N(0) + qN(1/z), N(0))."""

    def call(loss: Array) -> tuple[Array, Array]:
        u = own_loss(loss, q)
        return q * gaussian_call(u, z), np.exp(loss + log_ndtr(-z * u - 0.5 / z))

    def put(loss: Array) -> tuple[Array, Array]:
        u = own_loss(loss, q)
        inside = u > -np.inf
        u = np.where(inside, u, 0.0)
        below = np.exp(loss) * ndtr(z * u + 0.5 / z)
        return np.where(inside, q * np.exp(u) * gaussian_call(-u, z), 0.0), np.where(inside, below, 0.0)

    return call, put


def added(z: float, q: float) -> tuple[Profile, Profile]:
    """Return call and put of (N(0), (1−q)N(0) + qN(1/z)): the pair above, swapped."""
    call, put = removed(z, q)

    def swapped(loss: Array) -> tuple[Array, Array]:
        u = z * own_loss(-loss, q)
        below = (1 - q) * ndtr(u + 0.5 / z) + q * ndtr(u - 0.5 / z)
        return np.exp(loss) * put(-loss)[0], np.exp(loss) * below

    return swapped, swapped_put(call)


def replaced(z: float, q: float) -> Profile:
    """Return the call of ((1−q)N(0) + qN(1/z), (1−q)N(0) + qN(−1/z))."""

    def call(loss: Array) -> tuple[Array, Array]:
        # at the threshold x the densities meet: (c − 1)(1−q) φ(x) + c q φ(x + 1/z) = q φ(x − 1/z)
        with np.errstate(divide="ignore"):
            logs = np.log(-np.expm1(-loss) / 2) + loss / 2 + math.log((1 - q) / q) + 0.5 / z**2
        rise = np.where(logs > 300, logs + math.log(2), np.arcsinh(np.exp(np.minimum(logs, 300.0))))
        x = z * (loss / 2 + rise)
        near = mills(x - 1 / z)
        middle = -np.expm1(-loss) * (1 - q) * np.exp(loss - x * x / 2) / math.sqrt(2 * math.pi)
        far = q * np.exp(loss - (x + 1 / z) ** 2 / 2) / math.sqrt(2 * math.pi)
        value = middle * (near - mills(x)) + far * (near - mills(x + 1 / z))
        above = (1 - q) * np.exp(loss + log_ndtr(-x)) + q * np.exp(loss + log_ndtr(-x - 1 / z))
        return value, above

    return call


def pairs(z: float, q: float, pair: str, mass: float) -> tuple[Pair, ...]:
    """Return the ordered pairs of one round, q < 1; losses of chance `mass` at either end may be left out."""
    own = z / 2 if pair == "fixed" else z
    far = -float(ndtri(mass))
    spare = 1e-12 + 1e-13 * z  # two Mills ratios 1/z apart are subtracted

    def density(x: Array) -> Array:
        return (1 - q) * normal(x) + q * normal(x - 1 / own)

    def loss(x: Array) -> Array:
        return mixed_loss((x - 0.5 / own) / own, q)

    def both(x: Array) -> Array:
        return loss(x) - loss(-x)

    high = float(loss(np.asarray(1 / own + far)))
    low = float(loss(np.asarray(-far)))
    call, put = removed(own, q)
    if pair == "poisson":
        return (
            Pair(call, put, low, high, spare, "low", loss, density),
            Pair(*added(own, q), -high, -low, spare, "high", lambda x: -loss(x), normal),
        )
    if pair == "fixed":
        return (Pair(call, swapped_put(call), -high, high, spare, "middle", loss, density),)
    high = float(both(np.asarray(1 / z + far)))
    call = replaced(z, q)
    return (Pair(call, swapped_put(call), -high, high, spare, "middle", both, density),)


def profile(pair: Pair, loss: Array) -> tuple[Array, Array]:
    """Return put and c Q(R < c) where the loss is below 0, call and −c Q(R > c) from there on."""
    value, slope, left = np.empty(len(loss)), np.empty(len(loss)), loss < 0
    value[left], slope[left] = pair.put(loss[left])
    value[~left], slope[~left] = pair.call(loss[~left])
    return value, np.where(left, slope, -slope)


def anchor(pair: Pair, step: float) -> float:
    """Return a loss to lay a node on so that the bulk of the losses need not be moved to the grid.

    low: the mean of R below the middle of the cell that follows. high: the mean of R above the
    middle of the cell before. The tangent of that cell reaches 0 there.
    """
    if pair.bulk == "middle":
        return 0.0

    def height(at: float) -> float:
        middle = at + (0.5 if pair.bulk == "low" else -0.5) * step
        value, slope = (float(v[0]) for v in profile(pair, np.array([middle])))
        if pair.bulk == "low":
            if middle >= 0:  # put = call + c − 1
                value, slope = value + math.expm1(middle), slope + math.exp(middle)
            return value + slope * math.expm1(-step / 2)
        if middle < 0:
            value, slope = value - math.expm1(middle), slope - math.exp(middle)
        change = slope * math.expm1(step / 2)
        return value + change - 2 * pair.spare * (value - change)

    low, high = pair.low - step, pair.high + step
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (height(middle) <= 0) == (pair.bulk == "low") else (low, middle)
    return low


@dataclass(frozen=True)
class Losses:
    """Masses under P at the losses origin + (first + j)·step."""

    origin: float
    first: int
    mass: Array


def lower_losses(pair: Pair, step: float) -> Losses:
    """Return masses on a grid whose δ(c) lies below the pair's at every c."""
    origin = anchor(pair, step)
    first = 0 if pair.bulk == "low" else math.floor((pair.low - origin) / step)
    last = 0 if pair.bulk == "high" else math.ceil((pair.high - origin) / step)
    nodes = origin + step * np.arange(first, last + 1)
    chain = tangents(pair, nodes, step)
    over = np.flatnonzero((chain <= 0) & (nodes >= 0))  # the chain ends before it would fall below 0
    chain = chain[: over[0]] if len(over) else chain
    mass = bends(chain, nodes[: len(chain)], pair)
    return Losses(origin, first, mass * kept(mass, chain, nodes[: len(chain)], step) if mass.any() else mass)


def tangents(pair: Pair, nodes: Array, step: float) -> Array:
    """Return, at each node, the lower of the two tangents at the middles of its cells.

    It is that of E_Q[(c − R)₊] below c = 1 and of E_Q[(R − c)₊] from there on; they differ by c − 1.
    """
    middles = nodes[:-1] + 0.5 * step
    value, slope = profile(pair, middles)
    found = np.full(len(nodes), np.inf)
    for ends, part in ((slice(None, -1), -0.5 * step), (slice(1, None), 0.5 * step)):
        change = slope * math.expm1(part)
        apart = np.expm1(np.clip(nodes[ends], -600.0, 600.0))
        moved = np.where((nodes[ends] < 0) & (middles >= 0), apart, 0.0)
        moved = np.where((nodes[ends] >= 0) & (middles < 0), -apart, moved)
        rounding = pair.spare * (value + np.abs(change)) + 4e-16 * np.abs(moved)
        found[ends] = np.minimum(found[ends], value + change + moved - rounding)
    return found


def bends(chain: Array, nodes: Array, pair: Pair) -> Array:
    """Return the masses at which the chain of lines bends up, leaving out nodes at which it bends down."""
    at = np.arange(len(chain))
    while len(at) > 1 and nodes[at[-1]] > 0:
        losses = nodes[at]
        middle = int(np.argmax(losses >= 0))
        if losses[middle] > 600:
            break
        rise = np.diff(chain[at])
        if middle > 0:
            rise[middle - 1] += math.expm1(losses[middle])
        gap = np.diff(losses)
        right = rise / -np.expm1(-gap)  # the slope of each line, times c of the node on its right
        left = outset(pair, losses[0], chain[at[0]])
        mass = np.append(np.exp(-gap) * right, 0.0) - np.insert(right, 0, left)
        mass[middle] += math.exp(losses[middle])
        if (mass >= 0).all():
            found = np.zeros(len(chain))
            found[at] = mass
            return found
        at = at[mass >= 0]
    return np.zeros(len(chain))


def outset(pair: Pair, loss: float, level: float) -> float:
    """Return c times the slope of E_Q[(c − R)₊] that may be drawn down from the first node."""
    if loss < 0 and level <= 0:
        return 0.0
    slope = profile(pair, np.array([loss]))[1]
    if loss < 0:
        return float(slope[0]) * (1 + pair.spare)
    return math.exp(loss) + float(slope[0]) * (1 - pair.spare)


def kept(mass: Array, chain: Array, nodes: Array, step: float) -> float:
    """Return the factor that makes up for the rounding of the masses: their δ(c) is summed anew."""
    tails = lfilter([1.0], [1.0, -math.exp(-step)], mass[::-1])[::-1]  # Σ mass e^{ℓ − loss} from ℓ on
    summed = np.cumsum(tails[:0:-1])[::-1] * -math.expm1(-step)
    wanted = chain[:-1] - chain[-1] - np.expm1(np.minimum(nodes[:-1], 0.0))
    lowest = int(np.argmax(mass > 0))
    return (1 - 1e-12) / max(1.0, float((summed / wanted)[lowest:].max()))


@dataclass(frozen=True)
class Plan:
    """How to compose: the tilt θ, about what ε will come out, and how wide the tilted sum is."""

    theta: float
    epsilon: float
    spread: float


def plan(pair: Pair, z: float, rounds: int, delta: float) -> Plan:
    """Choose θ by Rényi divergences from a plain sum: that decides how close the bound is, no more."""
    far = -float(ndtri(1e-4 * delta / rounds)) + 1
    around = np.linspace(-far, far, 1501)
    x = np.unique(np.concatenate([around, around + 1 / z]))
    weight = pair.density(x) * np.gradient(x)
    loss = pair.loss(x)[weight > 0]
    weight = weight[weight > 0]
    theta = np.geomspace(1e-3, 3000, 60) / (loss.max() - loss.min())
    logs = np.log(weight) + theta[:, None] * loss
    peak = logs.max(axis=1)
    tilted = np.exp(logs - peak[:, None])
    total = rounds * (peak + np.log(tilted.sum(axis=1)))
    bound = (total - math.log(delta) - np.log1p(theta) - theta * np.log1p(1 / theta)) / theta
    best = int(np.argmin(bound))
    share = tilted[best] / tilted[best].sum()
    variance = share @ (loss - share @ loss) ** 2
    return Plan(float(theta[best]), float(bound[best]), math.sqrt(rounds * variance))


def composed(pair: Pair, how: Plan, rounds: int, delta: float, step: float) -> float:
    """Return a lower bound on ε of T rounds in one direction."""
    one = lower_losses(pair, step)
    losses = one.origin + step * (one.first + np.arange(len(one.mass)))
    with np.errstate(divide="ignore"):
        logs = np.log(one.mass) + how.theta * losses
    top = logs.max()
    if top == -np.inf:
        return 0.0
    start = np.exp(logs - top)
    scale = float(start.sum())
    first, weights = power(start / scale, one.first, rounds)
    losses = rounds * one.origin + step * (first + np.arange(len(weights)))
    losses -= 1e-15 * rounds * abs(one.origin) - 1e-15 * np.abs(losses)
    inside = (losses > -step) & (losses > how.epsilon - 500 / how.theta)
    losses, weights = losses[inside], weights[inside]
    if not len(losses):
        return 0.0
    # the masses under P themselves, times e^{−total}
    total = rounds * (top + math.log(scale)) - how.theta * how.epsilon
    masses = weights * np.exp(-how.theta * (losses - how.epsilon))
    return largest(losses, masses, step, math.log(delta) - total + 1e-9 + 1e-14 * rounds)


def power(weights: Array, first: int, rounds: int) -> tuple[int, Array]:
    """Return the T-fold convolution of positive weights, rounded down, and the index it starts from."""
    found, start = trimmed(weights, first)
    base, base_start = found, start
    for bit in bin(rounds)[3:]:
        found, start = trimmed(convolved(found, found), 2 * start)
        if bit == "1":
            found, start = trimmed(convolved(found, base), start + base_start)
    return start, found


def trimmed(weights: Array, first: int) -> tuple[Array, int]:
    """Return weights without the zeros at either end."""
    at = np.flatnonzero(weights)
    return (weights[at[0] : at[-1] + 1], first + int(at[0])) if len(at) else (np.zeros(1), first)


def convolved(a: Array, b: Array) -> Array:
    """Return a convolution less what rounding may have added.

    Of an FFT the error is at most 7 u log₂ n times the norm (Higham 2002, Theorem 24.2), u = 1.1e-16.
    """
    length = len(a) + len(b) - 1
    if min(len(a), len(b)) < 400:
        return np.convolve(a, b) * (1 - 1e-13)
    n = next_fast_len(length, real=True)
    error = 22 * 1.2e-16 * math.log2(n) * float(np.linalg.norm(a) * np.linalg.norm(b))
    return np.maximum(irfft(rfft(a, n) * rfft(b, n), n)[:length] - error, 0.0)


def largest(losses: Array, masses: Array, step: float, wanted: float) -> float:
    """Return the largest ε ≥ 0 with log δ(ε) above `wanted`, or 0."""
    if wanted > 650:
        return 0.0
    # Σ mass and Σ mass e^{ℓ − loss}, over losses from ℓ on
    above = np.cumsum(masses[::-1])[::-1]
    decayed = lfilter([1.0], [1.0, -math.exp(-step)], masses[::-1])[::-1]
    delta = np.append(np.cumsum(decayed[:0:-1])[::-1] * -math.expm1(-step), 0.0)
    limit = math.exp(wanted)
    passed = np.flatnonzero(delta > limit)
    at = int(passed[-1]) + 1 if len(passed) else 0
    # between two losses δ(ε) = Σ mass − e^{ε − ℓ} Σ mass e^{ℓ − loss}
    if above[at] <= limit:
        return 0.0
    return max(0.0, float(losses[at] + math.log((above[at] - limit) / decayed[at])))


def lower_epsilon(z: float, q: float, rounds: int, delta: float, pair: str, accuracy: float = ACCURACY) -> float:
    """Return a lower bound on ε of T rounds of one of the pairs, q < 1."""
    own = z / 2 if pair == "fixed" else z
    found = 0.0
    for one in pairs(z, q, pair, 0.1 * accuracy * delta / rounds):
        how = plan(one, own, rounds, delta)
        expected = how.epsilon
        for _ in range(4):
            if how.epsilon <= found or rounds * one.high <= found:
                break
            # the chain takes about T θ(θ+1) step²/24 from the log of E[e^{θL}]
            room = max(expected, 0.02 / how.theta)
            step = math.sqrt(24 * accuracy * room / (rounds * (how.theta + 1)))
            step = max(step, (one.high - one.low) / ROUND, 16 * how.spread / SUM)
            step = min(step, (one.high - one.low) / 64)
            reached = composed(one, how, rounds, delta, step)
            found = max(found, reached)
            if reached > 0.3 * expected:
                break
            expected = max(reached, 0.1 * expected)
    return found
