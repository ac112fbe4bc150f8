"""The problems of benchmarks/optimizers.py: test functions, and federations whose answer is known or cheap to measure.

Hypervolume is taken of `truth`, what would be measured without noise, so that no optimizer gains by a lucky draw.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pymoo.problems import get_problem

from fedpareto.federation.problem import Federation
from fedpareto.noise import rng
from fedpareto.problem import Objective
from fedpareto.space import Float, FloatArray, Integer, Space, Values

Columns = dict[str, FloatArray]  # name → [n]
Formula = Callable[[Columns], Columns]


@dataclass(frozen=True)
class Synthetic:
    """A problem by formula: some measures known, the others measured with noise; where `free` is named, on every round of a run."""

    space: Space
    objectives: tuple[Objective, ...]
    measured: Formula
    known_formula: Formula = lambda columns: {}
    noise: float = 0.0
    free: str | None = None
    block: int = 1_000_000
    failures: dict[str, str] = field(default_factory=dict)

    def known(self, values: Values, names: Sequence[str] | None = None) -> Columns:
        found = self.known_formula(_columns(values))
        return {name: column for name, column in found.items() if names is None or name in names}

    def measure(self, values: Values, seeds: Sequence[int]) -> Columns:
        columns = _columns(values)
        out = self.measured(columns) | self.known_formula(columns)
        for name in self.measured(columns):
            draws = [rng(seed, name, *(repr(float(column[i])) for column in columns.values())).normal() for i, seed in enumerate(seeds)]
            out[name] = out[name] + self.noise * np.array(draws)
        return out

    def measure_along(self, values: Values, seeds: Sequence[int]) -> tuple[Columns, Columns]:
        """Return what measure does, and the same after each round, name → [n,T]."""
        assert self.free is not None
        last = np.asarray(values[self.free])
        way = {o.measure: np.full((len(seeds), last.max()), np.nan) for o in self.objectives}
        for t in range(1, last.max() + 1):
            rows = np.flatnonzero(last >= t)
            there = {name: [column[i] for i in rows] for name, column in values.items()} | {self.free: [t] * len(rows)}
            shown = self.measure(there, [seeds[i] for i in rows])
            for name, curve in way.items():
                curve[rows, t - 1] = shown[name]
        return self.measure(values, seeds), way

    def truth(self, x: FloatArray) -> FloatArray:
        """Return the objectives [n,m] of the points x [n,d] without noise."""
        columns = _columns(self.space.decode(x))
        out = self.measured(columns) | self.known_formula(columns)
        return np.stack([out[o.measure] for o in self.objectives], axis=1)


def _columns(values: Values) -> Columns:
    return {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}


def randomization() -> Synthetic:
    """RD: Kang 2023's randomization, its leakage (Eq. 13) with 269,322 parameters, and a made-up utility."""
    def utility(c: Columns) -> Columns:
        rate = (np.log10(c["learning_rate"]) + 1.1) ** 2
        harm = 1 - np.exp(-((c["sigma"] / 0.11) ** 2) * (c["learning_rate"] / 0.08) ** 0.5)
        return {"error": np.minimum(0.9, 0.12 + 0.3 * rate + 0.12 / c["clipping_norm"] ** 2 + 0.7 * harm)}

    def leakage(c: Columns) -> Columns:
        return {"leakage": 1 - np.minimum(1.0, (c["sigma"] / c["clipping_norm"]) ** 2 * np.sqrt(269_322))}

    space = Space((Float("sigma", 0.0, 1.0), Float("clipping_norm", 1.0, 4.0), Float("learning_rate", 0.01, 0.3)))
    objectives = (Objective("error", reference=0.9), Objective("leakage", limit=0.8, reference=0.8))
    return Synthetic(space, objectives, utility, leakage, noise=0.01)


def synthetic() -> Synthetic:
    """Syn: noise, sampled share, rounds, learning rate and width against error, leakage and cost; every round is seen."""
    def utility(c: Columns) -> Columns:
        speed = 0.12 * c["learning_rate"] / 0.1 * np.exp(1 - c["learning_rate"] / 0.1)
        learned = 1 - np.exp(-speed * c["rounds"])
        most = 0.82 - 0.25 * np.exp(-c["width"] / 40)
        kept = 1 / (1 + c["sigma"] ** 2 * c["rounds"] ** 0.5 / (4 * c["q"]))  # of the signal, under noise
        return {"error": 0.9 - most * learned * kept}

    def closed(c: Columns) -> Columns:
        leakage = 1 - np.exp(-0.06 * np.sqrt(c["q"] * c["rounds"]) / c["sigma"])
        return {"leakage": leakage, "cost": c["q"] * c["rounds"] * c["width"] / (100 * 256)}

    space = Space((Float("sigma", 0.05, 2.0, log=True), Float("q", 0.1, 1.0), Integer("rounds", 1, 100),
                   Float("learning_rate", 0.01, 0.5, log=True), Integer("width", 8, 256)))
    objectives = (Objective("error", reference=0.9), Objective("leakage", limit=0.8, reference=0.8), Objective("cost", reference=1.0))
    return Synthetic(space, objectives, utility, closed, noise=0.01, free="rounds")


def theory() -> Synthetic:
    """Gu 2024, Eq. 8 with k = 22 and K = 40 (Figure 2): f1 = 1/T + kσ²/(qK), measured with noise; f2 = √(qT)/σ, here per hundred."""
    def utility(c: Columns) -> Columns:
        return {"f1": 1 / c["rounds"] + 22 * c["sigma"] ** 2 / (c["q"] * 40)}

    def privacy(c: Columns) -> Columns:
        return {"f2": np.sqrt(c["q"] * c["rounds"]) / c["sigma"] / 100}

    space = Space((Float("sigma", 0.01, 1.0, log=True), Float("q", 0.1, 1.0), Integer("rounds", 1, 200)))
    objectives = (Objective("f1", reference=0.1), Objective("f2", limit=1.0, reference=1.0))
    return Synthetic(space, objectives, utility, privacy, noise=0.002, free="rounds")


def zdt3() -> Synthetic:
    peer = get_problem("zdt3", n_var=4)
    return _function(lambda x: peer.evaluate(x), 4, 2)


def dtlz2() -> Synthetic:
    peer = get_problem("dtlz2", n_var=6, n_obj=3)
    return _function(lambda x: peer.evaluate(x), 6, 3)


def c2dtlz2() -> Synthetic:
    """Return C2-DTLZ2 with two objectives; by how much its constraint is broken is a third, with limit 0.

    Points within the limit have 0 there, so the hypervolume is that of the other two.
    """
    peer = get_problem("c2dtlz2", n_var=4, n_obj=2)

    def three(x: FloatArray) -> FloatArray:
        found = peer.evaluate(x, return_as_dictionary=True)
        return np.hstack([found["F"], np.maximum(found["G"], 0.0)])

    plain = _function(three, 4, 3)
    return replace(plain, objectives=(*plain.objectives[:2], Objective("f3", limit=0.0, reference=1.0)))


def _function(function: Callable[[FloatArray], FloatArray], d: int, m: int) -> Synthetic:
    def measured(c: Columns) -> Columns:
        return {f"f{j + 1}": column for j, column in enumerate(function(np.stack(list(c.values()), axis=1)).T)}

    space = Space(tuple(Float(f"x{j + 1}", 0.0, 1.0) for j in range(d)))
    return Synthetic(space, tuple(Objective(f"f{j + 1}", reference=1.1) for j in range(m)), measured)


DIGITS = """
seed = 1
budget = 1
[data]
name = "digits"
clients = 10
[model]
name = "lr"
[training]
rounds = 10
local_steps = 10
batch_size = 16
sample_ratio = 0.5
learning_rate = [0.01, 0.5]
[mechanism]
name = "randomization"
sigma = [0.0, 1.0]
clipping_norm = [0.5, 4.0]
[objectives.error]
measure = "test_error"
reference = 0.9
[objectives.leakage]
measure = "kang23_eq13"
limit = 0.8
reference = 0.8
[optimizer]
name = "random"
"""


@dataclass(frozen=True)
class Digits:
    """A real federation on the digits, one training per measurement; the truth of a point is the mean of four others."""

    problem: Federation

    def __getattr__(self, name: str) -> object:
        return getattr(self.problem, name)

    def known(self, values: Values, names: Sequence[str] | None = None) -> Columns:
        return self.problem.known(values, names)

    def truth(self, x: FloatArray) -> FloatArray:
        values = {name: [v for v in column for _ in range(4)] for name, column in self.space.decode(x).items()}
        out = self.measure(values, [1000, 1001, 1002, 1003] * len(x))
        return np.stack([out[o.measure].reshape(-1, 4).mean(axis=1) for o in self.objectives], axis=1)


def digits() -> Digits:
    from fedpareto.study import load_study

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.toml"
        path.write_text(DIGITS)
        return Digits(load_study(path).problem)


FEDERATIONS = {"randomization": randomization, "synthetic": synthetic, "theory": theory, "digits": digits}
FUNCTIONS = {"zdt3": zdt3, "c2dtlz2": c2dtlz2, "dtlz2": dtlz2}
