"""Price many settings by our own accountant and by dp-accounting's PLD, in one run on one core.

    OMP_NUM_THREADS=1 python benchmarks/accounting.py [--settings 10000] [--sample 20] [--json]

Settings are drawn at random: noise multiplier z in [0.3, 30], sampling ratio q in [0.001, 1], rounds T in [1, 1000], all on a log scale,
δ = 1e-5, Poisson sampling, release view. dp-accounting runs a sample of them at interval 1e-4. excess: how far our ε lies above theirs,
where ε is at least 0.2, so that their interval is fine enough to tell. Bar: 10,000 settings in 20 s on one core.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import dp_accounting
import numpy as np

from fedpareto.privacy.loss import PAIRS, release_epsilon

DELTA = 1e-5


def drawn(n: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z, q = np.exp(rng.uniform(math.log(0.3), math.log(30), n)), np.exp(rng.uniform(math.log(0.001), 0, n))
    return z, q, np.floor(np.exp(rng.uniform(0, math.log(1001), n)))


def theirs(z: float, q: float, rounds: int) -> float:
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), rounds)
    return float(accountant.get_epsilon(DELTA))


def timed(call: object, *args: object) -> tuple[float, object]:
    start = time.perf_counter()
    result = call(*args)  # type: ignore[operator]
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    args = parser.parse_args()
    z, q, rounds = drawn(args.settings)
    seconds, ours = {}, {}
    for pair in PAIRS:
        seconds[pair], ours[pair] = timed(release_epsilon, z, q, rounds, DELTA, pair)
    fair = np.flatnonzero((ours["poisson"] > 0.2) & (ours["poisson"] < 100))[:args.sample]
    compared = [(timed(theirs, z[i], q[i], int(rounds[i])), ours["poisson"][i], i) for i in fair]
    each = float(np.mean([took for (took, _), _, _ in compared]))
    excess = max(float(mine / other - 1) for (_, other), mine, _ in compared)
    ratio = each / (seconds["poisson"] / args.settings)
    if args.json:
        print(json.dumps({"settings": args.settings, "seconds": round(seconds["poisson"], 2), "ratio_to_dp_accounting": round(ratio),
                          "largest_excess": round(excess, 6)}))
        return
    print(f"{'z':>8} {'q':>8} {'T':>5} {'dp-accounting':>14} {'fedpareto':>12} {'excess':>9} {'their ms':>9}")
    for (took, other), mine, i in compared:
        print(f"{z[i]:8.3f} {q[i]:8.4f} {rounds[i]:5.0f} {other:14.6f} {mine:12.6f} {mine / other - 1:9.1e} {1e3 * took:9.0f}")
    for pair in PAIRS:
        print(f"{pair}: {args.settings} settings in {seconds[pair]:.1f} s, {1e3 * seconds[pair] / args.settings:.2f} ms each")
    print(f"dp-accounting: {1e3 * each:.0f} ms each, {ratio:.0f} times as long; largest excess {excess:.1e}")


if __name__ == "__main__":
    main()
