"""Do the papers' proxies order settings as attacks do? On example studies, and at the papers' own scale.

    FEDPARETO_DATA=... python benchmarks/audit_findings.py [--only NAME ...] [--json FILE]

Each question attacks settings of a study, and says by Spearman's ρ how far each measure orders them as the attack does: +1 where what is
larger is attacked better. Settings are drawn evenly from the study's space and trained once each; or they are trials of a search at paper
scale, whose rows are kept in benchmarks/results/papers/rows.tar.xz, evenly by one measure. gain is by how many dB pictures are nearer than
the mean image.
"""

from __future__ import annotations

import argparse
import json
import math
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc, spearmanr

from fedpareto import Space, Store, load_study
from fedpareto.audit import Attack, Inversion, Membership, Points
from fedpareto.noise import derive

HERE = Path(__file__).parent
ROWS = HERE / "results" / "papers" / "rows.tar.xz"
EXAMPLES = HERE.parent / "examples"
PROXIES = ("gu24_eq2", "kang23_eq13", "kang23_eq13_smooth", "kang23_eq15", "xiao25_eq7")
TRUE = ("epsilon_server", "epsilon_secagg", "epsilon_release")
SEED = 1


@dataclass(frozen=True)
class Question:
    """One attack on settings of one study."""

    study: str
    points: int
    attack: Attack
    view: str
    found: tuple[str, ...]  # measures of the attack, larger where it is better
    rows: str = ""  # of a search that is kept; if none, settings are drawn and trained
    by: str = ""  # the measure by which trials of a search are taken evenly


def of_members(study: str, points: int, shadows: int) -> Question:
    """Ask how well members are told by the models."""
    return Question(study, points, Membership(shadows), "release", ("auc", "client_auc"))


def of_pictures(study: str, points: int, pictures: int = 10, rows: str = "", by: str = "") -> Question:
    """Ask how near pictures come back from an upload."""
    return Question(study, points, Inversion(pictures, candidates=200), "server", ("gain", "lineup"), rows, by)


RD, SF = "kang23-rd-ours-seed1.db", "kang23-sf-cmofl-nsga2-5-seed1.db"
QUESTIONS = {
    "quickstart": of_members("quickstart.toml", 12, 32),
    "overfitted": of_members("overfitted.toml", 12, 32),
    "overfitted, pictures": of_pictures("overfitted.toml", 16),
    "kang23-rd": of_pictures("papers/kang23-rd.toml", 16, 5, RD, "kang23_eq13"),
    "kang23-sf": of_pictures("papers/kang23-sf.toml", 16, 5, SF, "kang23_eq15"),
    "gu24-lenet": of_pictures("papers/gu24-lenet.toml", 8, 2, "gu24-lenet-K40-q0.125-E20.db", "gu24_eq2"),
    # hours of a processor: not in the results that are kept
    "kang23-rd, members": of_members("papers/kang23-rd.toml", 12, 96),
}


def asked(question: Question) -> tuple[Points, dict[str, list[float]]]:
    """Return the settings that are attacked, and what a study says of them, name → [n]."""
    problem = load_study(EXAMPLES / question.study).problem
    if question.rows:
        settings, measures = kept_rows(question)
    else:
        settings = drawn(problem.space, question.points)
        measures = {}
    points = Points(problem, tuple(range(len(settings))), tuple(settings))
    if not question.rows:
        n = len(points)
        measures = dict(problem.columns(points.values, n, ("server", "secagg", "release")))
        measures |= problem.measure(points.values, [derive(SEED, "training")] * n)
    wanted = (*PROXIES, *TRUE, "test_error", "test_loss")
    return points, {name: np.asarray(measures[name], float).tolist() for name in wanted if name in measures}


def drawn(space: Space, n: int) -> list[dict[str, Any]]:
    """Return settings of a Sobol sequence in a space."""
    rows = qmc.Sobol(len(space.variables), seed=SEED).random(1 << math.ceil(math.log2(n)))[:n]
    decoded = space.decode(rows)
    settings = [{name: decoded[name][i] for name in space.names} for i in range(n)]
    return [{name: v.item() if hasattr(v, "item") else v for name, v in s.items()} for s in settings]


def kept_rows(question: Question) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    """Return settings of a search that is kept, evenly by a measure, and what was measured of them, name → [n]."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ROWS) as every:
            every.extract(question.rows, folder, filter="data")
        with Store.read(Path(folder) / question.rows) as store:
            trials = [t for t in store.trials() if t.state == "done"]
    trials.sort(key=lambda t: t.measures[question.by])
    taken = [trials[i] for i in np.unique(np.linspace(0, len(trials) - 1, question.points).round().astype(int))]
    names = set.intersection(*(set(t.measures) for t in taken))
    return [t.settings for t in taken], {name: [t.measures[name] for t in taken] for name in names}


def orders(measures: dict[str, list[float]], found: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return Spearman's ρ of each measure with each measure of the attack."""
    out: dict[str, dict[str, float]] = {}
    for name, values in measures.items():
        for attack, shown in found.items():
            both = np.array([values, shown], float)
            both = both[:, np.isfinite(both).all(0)]
            if both.shape[1] < 4 or (np.ptp(both, axis=1) == 0).any():
                continue
            out.setdefault(name, {})[attack] = round(float(spearmanr(both[0], both[1]).statistic), 3)
    return out


def answer(question: Question) -> dict[str, object]:
    """Attack the settings of a question, and return what was found."""
    points, measures = asked(question)
    began = time.perf_counter()
    findings = [f.measures for f in question.attack.audit(points, question.view, SEED)]
    seconds = time.perf_counter() - began
    if "psnr" in findings[0]:  # the mean image needs no upload: what is no nearer gains nothing
        findings = [f | {"gain": max(0.0, f["psnr"] - f["psnr_of_mean"])} for f in findings]
    found = {name: [f[name] for f in findings] for name in question.found}
    for name in ("psnr", "psnr_of_mean", "lineup_chance", "label", "shadow_error", "above_mean"):
        if name in findings[0]:
            found[name] = [f[name] for f in findings]
    ordered = orders(measures, {name: found[name] for name in question.found})
    return {
        "study": question.study, "rows": question.rows, "attack": repr(question.attack), "view": question.view, "seconds": round(seconds, 1),
        "settings": list(points.settings), "measures": measures, "found": found, "spearman": ordered,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=[n for n in QUESTIONS if "members" not in n])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for name in given.only:
        kept[name] = answer(QUESTIONS[name])
        found = kept[name]
        print(f"{name}: {len(found['settings'])} settings, {found['attack']}, {found['seconds']} s", flush=True)
        for measure, by in found["spearman"].items():
            print(f"  {measure:20s}", "  ".join(f"{attack} {rho:+.2f}" for attack, rho in by.items()), flush=True)
        if given.json:
            given.json.write_text(json.dumps({n: kept[n] for n in QUESTIONS if n in kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
