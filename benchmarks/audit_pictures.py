"""What comes back of ten digits that clients with one image each send: LeNet-5 on MNIST, trained as in Gu 2024.

    FEDPARETO_DATA=... python benchmarks/audit_pictures.py [--sigmas 0 0.001 0.03286]

0.03286 is the noise of the point that is recommended on the front of Gu 2024, Fig. 2(b), as searched at paper scale: its rows lie in
benchmarks/results/papers/rows.tar.xz. Pictures go to docs/, figures to benchmarks/results/audit_pictures.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from fedpareto import load_study
from fedpareto.audit import Inversion, Points

HERE = Path(__file__).parent
STUDY = HERE.parent / "examples" / "papers" / "gu24-lenet.toml"
KEPT = HERE / "results" / "audit_pictures.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.0, 0.001, 0.03286])
    parser.add_argument("--pictures", type=int, default=10)
    given = parser.parse_args()
    problem = load_study(STUDY).problem
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for sigma in given.sigmas:
        began = time.perf_counter()
        points = Points(problem, (0,), ({"rounds": 1, "sigma": sigma},))
        (finding,) = Inversion(given.pictures).audit(points, "server", 0)
        seconds = round(time.perf_counter() - began, 1)
        kept[f"{sigma:g}"] = {**finding.measures, "seconds": seconds}
        print(sigma, kept[f"{sigma:g}"], flush=True)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        if finding.picture:
            (HERE.parent / "docs" / f"audit-lenet5-sigma-{sigma:g}.png").write_bytes(finding.picture)


if __name__ == "__main__":
    main()
