"""Find the smallest and the largest cohort that hold an ε, among all of them.

At a fixed noise of each client ε first falls with the cohort, since more clients add more noise
together, then rises, since each is drawn more often. At a fixed noise on the sum it rises. In every
view it has one least value at most between its ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GRID = 24  # cohorts priced before anything is refined
NEAR = 4  # cohorts on each side of the least ε that are priced one by one


def ends(price: Callable[[int], float], low: int, high: int, target: float) -> tuple[int, int]:
    """Return the smallest and the largest cohort from low to high whose ε is at most the target.

    Where none is, return the one with the least ε, twice.
    """
    spread = low - 1 + np.geomspace(1, high - low + 1, GRID)
    tried = sorted({int(m) for m in np.rint(spread)})

    def holds(m: int) -> bool:
        return price(m) <= target

    if not any(map(holds, tried)):
        best = _least(price, tried)
        if not holds(best):
            return best, best
        tried = sorted({*tried, best})
    kept = [holds(m) for m in tried]
    first = kept.index(True)
    last = len(kept) - 1 - kept[::-1].index(True)
    smallest = tried[first] if first == 0 else _border(holds, tried[first], tried[first - 1])
    largest = tried[last] if tried[last] == high else _border(holds, tried[last], tried[last + 1])
    return smallest, largest


def _least(price: Callable[[int], float], tried: list[int]) -> int:
    """Return the cohort with the least ε, which lies beside the least of those tried."""
    place = int(np.argmin([price(m) for m in tried]))
    low = tried[max(place - 1, 0)]
    high = tried[min(place + 1, len(tried) - 1)]
    while high - low > 2 * NEAR:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        if price(left) <= price(right):
            high = right
        else:
            low = left
    return min(range(low, high + 1), key=price)


def _border(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """Return the cohort that holds and is next to one that does not, between these two."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside
