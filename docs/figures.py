"""Draw the figures of the documentation from the code.

Run it: python docs/figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpareto.privacy import VIEWS, Privacy, epsilon, gu24_eq2
from fedpareto.report.figures import save

HERE = Path(__file__).parent
COHORTS = (1, 2, 5, 10, 20, 50, 100)


def u_shape() -> dict[str, np.ndarray]:
    """Return ε of every view, and a proxy, for cohorts of 1 to 100 clients with fixed noise."""
    common = {
        "noise": 0.3,
        "clipping_norm": 1.0,
        "cohort": np.array(COHORTS, dtype=float),
        "clients": 100,
        "rounds": 100,
        "sampling": "poisson",
    }
    out = {view: epsilon(Privacy(target_delta=1e-5), view=view, **common) for view in VIEWS}
    out["gu24_eq2 (proxy)"] = gu24_eq2(0.3, 1.0, np.array(COHORTS) / 100, 100, 100, 1e-5)
    return out


def draw_u_shape(axes, curves) -> None:
    """Draw ε against the cohort, one curve for each view and for the proxy."""
    for (name, values), style in zip(curves.items(), ("C0o-", "C1s-", "C2^-", "C7--"), strict=True):
        axes.plot(COHORTS, values, style, label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="clients a round, of 100",
        ylabel="ε (and the proxy) over 100 rounds, δ = 1e-5",
        title="Each client adds the same noise: asking more of them helps, then hurts",
    )
    axes.legend(frameon=False)


if __name__ == "__main__":
    curves = u_shape()
    print(save(draw_u_shape, curves, HERE / "epsilon-against-cohort.png"))
    for name, values in curves.items():
        pairs = [f"{m}: {v:.4g}" for m, v in zip(COHORTS, values, strict=True)]
        print(f"{name:18s}", "  ".join(pairs))
