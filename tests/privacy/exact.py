"""The closed forms of δ to 60 digits: rounds without sampling, and one sampled round."""

from __future__ import annotations

import mpmath

DIGITS = 60


def exact_gaussian_delta(z: float, rounds: int, epsilon: float) -> mpmath.mpf:
    """Return δ of T rounds without sampling, to 60 digits."""
    with mpmath.workdps(DIGITS):
        return _delta(mpmath.mpf(z) / mpmath.sqrt(rounds), mpmath.mpf(epsilon))


def exact_delta(z: float, q: float, epsilon: float, pair: str) -> mpmath.mpf:
    """Return δ of one sampled round, to 60 digits less what cancels."""
    with mpmath.workdps(DIGITS):
        e, share = mpmath.mpf(epsilon), mpmath.mpf(q)
        own = mpmath.mpf(z) / 2 if pair == "fixed" else mpmath.mpf(z)
        if pair == "poisson_replace":
            sides = (1 - share) / share * mpmath.sinh(e / 2) * mpmath.exp(1 / (2 * own**2))
            x = own * (e / 2 + mpmath.asinh(sides))
            p, r = ((1 - share) * mpmath.ncdf(-x) + share * mpmath.ncdf(s / own - x) for s in (1, -1))
            return p - mpmath.exp(e) * r
        found = share * _delta(own, mpmath.log1p(mpmath.expm1(e) / share))
        inside = 1 + mpmath.expm1(-e) / share
        if pair == "poisson" and inside > 0:
            u = mpmath.log(inside)
            found = max(found, mpmath.exp(e + u) * share * _delta(own, -u))
        return found


def _delta(z: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """Return δ of one round without sampling."""
    half = 1 / (2 * z)
    return mpmath.ncdf(half - epsilon * z) - mpmath.exp(epsilon) * mpmath.ncdf(-half - epsilon * z)
