"""Do the papers' proxies order settings as attacks do? On example studies, and at the papers' own scale.

    FEDPARETO_DATA=... python benchmarks/audit_findings.py [--only NAME ...] [--json FILE]

Each question draws settings evenly from the space of a study, attacks them, and says by Spearman's ρ how far each measure orders them
as the attack does: +1 where what is larger is attacked better. Errors and losses are those of one training of each setting, where
that is cheap; Eq. 15 of Kang 2023 is that of one round.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import qmc, spearmanr

from fedpareto import load_study
from fedpareto.audit import Attack, Inversion, Membership, Points
from fedpareto.noise import derive

HERE = Path(__file__).parent
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
    training: str = "whole"  # of each setting once, for what follows from none alone; or: one round, none


def of_members(study: str, points: int, shadows: int) -> Question:
    """Ask how well members are told by the models."""
    return Question(study, points, Membership(shadows), "release", ("auc", "client_auc"))


def of_pictures(study: str, points: int, pictures: int = 10, training: str = "none") -> Question:
    """Ask how near pictures come back from an upload."""
    return Question(study, points, Inversion(pictures, candidates=200), "server", ("psnr", "lineup"), training)


QUESTIONS = {
    "quickstart": of_members("quickstart.toml", 12, 32),
    "overfitted": of_members("overfitted.toml", 12, 32),
    "overfitted, pictures": of_pictures("overfitted.toml", 16, training="whole"),
    "gu24-lr": of_pictures("papers/gu24-lr.toml", 12, 5),
    "kang23-rd": of_pictures("papers/kang23-rd.toml", 12, 5),
    "kang23-sf": of_pictures("papers/kang23-sf.toml", 12, 5, training="one round"),
    "gu24-lenet": of_pictures("papers/gu24-lenet.toml", 8, 2),
    # hours of a processor each: not in the results that are kept
    "gu24-lr, members": of_members("papers/gu24-lr.toml", 12, 96),
    "kang23-rd, members": of_members("papers/kang23-rd.toml", 12, 96),
}


def asked(question: Question) -> Points:
    """Return the settings that are attacked: a Sobol sequence in the study's space."""
    problem = load_study(EXAMPLES / question.study).problem
    draw = qmc.Sobol(len(problem.space.variables), seed=SEED)
    rows = draw.random(1 << math.ceil(math.log2(question.points)))[: question.points]
    names = problem.space.names
    decoded = problem.space.decode(rows)
    settings = [{name: decoded[name][i] for name in names} for i in range(len(rows))]
    plain = [{n: v.item() if hasattr(v, "item") else v for n, v in s.items()} for s in settings]
    return Points(problem, tuple(range(len(rows))), tuple(plain))


def judged(question: Question, points: Points) -> dict[str, list[float]]:
    """Return what a study would say of the settings, name → [n]."""
    problem, n = points.problem, len(points)
    measures = dict(problem.columns(points.values, n, ("server", "secagg", "release")))
    measures |= problem.known(points.values, PROXIES)
    if question.training == "one round":
        problem = replace(problem, training=replace(problem.training, rounds=1, evaluate_every=1))
    if question.training != "none":
        measures |= problem.measure(points.values, [derive(SEED, "training")] * n)
    wanted = (*PROXIES, *TRUE, *(("test_error", "test_loss") if question.training == "whole" else ()))
    return {name: np.asarray(measures[name], float).tolist() for name in wanted if name in measures}


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
    points = asked(question)
    began = time.perf_counter()
    findings = [f.measures for f in question.attack.audit(points, question.view, SEED)]
    seconds = time.perf_counter() - began
    measures = judged(question, points)
    found = {name: [f[name] for f in findings] for name in question.found}
    for name in ("psnr_of_mean", "lineup_chance", "label", "shadow_error", "above_mean"):
        if name in findings[0]:
            found[name] = [f[name] for f in findings]
    ordered = orders(measures, {name: found[name] for name in question.found})
    return {
        "study": question.study, "attack": repr(question.attack), "view": question.view, "seconds": round(seconds, 1),
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
