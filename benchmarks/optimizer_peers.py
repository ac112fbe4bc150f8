"""Optuna's samplers and pymoo's NSGA-III behind this package's interface, as their documentation would have a user call them: ask a
batch, tell a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.space import Choice, Float, FloatArray


@dataclass(frozen=True)
class OptunaPeer:
    """Optuna's NSGA-II or Gaussian-process sampler, with limits as constraints. It remembers: one history after another only."""

    sampler: str
    batch: int
    studies: dict[int, Any] = field(default_factory=dict)

    def propose(self, problem: Any, history: History, n: int, seed: int) -> FloatArray:
        if len(history) == 0:
            self.studies[seed] = (self._study(problem, seed), [])
        study, asked = self.studies[seed]
        for trial, y in zip(asked, history.y[len(history) - len(asked) :], strict=True):
            over = [float(y[j] - o.limit) for j, o in enumerate(problem.objectives) if o.limit is not None]
            trial.set_user_attr("over", over)
            study.tell(trial, [float(v) for v in y])
        trials = [study.ask() for _ in range(n)]
        self.studies[seed] = (study, trials)
        values = {v.name: [self._suggest(trial, v) for trial in trials] for v in problem.space.variables}
        return problem.space.encode(values, n)

    def _study(self, problem: Any, seed: int) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        limited = any(o.limit is not None for o in problem.objectives)
        arguments: dict[str, Any] = {"seed": derive(seed, "optuna") % 2**31}
        if limited:
            arguments["constraints_func"] = lambda trial: trial.user_attrs.get("over", [0.0])
        if self.sampler == "nsga2":
            sampler = optuna.samplers.NSGAIISampler(population_size=self.batch, **arguments)
        else:
            sampler = optuna.samplers.GPSampler(n_startup_trials=5, **arguments)
        return optuna.create_study(directions=["minimize"] * len(problem.objectives), sampler=sampler)

    def _suggest(self, trial: Any, variable: Any) -> Any:
        if isinstance(variable, Choice):
            return trial.suggest_categorical(variable.name, variable.choices)
        if isinstance(variable, Float):
            value = trial.suggest_float(variable.name, variable.low, variable.high, log=variable.log)
            return float(np.clip(value, variable.low, variable.high))
        return trial.suggest_int(variable.name, variable.low, variable.high, log=variable.log)


@dataclass(frozen=True)
class PymooPeer:
    """pymoo's NSGA-III, with limits as constraints. It remembers: one history after another only."""

    batch: int
    running: dict[int, Any] = field(default_factory=dict)

    def propose(self, problem: Any, history: History, n: int, seed: int) -> FloatArray:
        if len(history) == 0:
            self.running[seed] = [self._algorithm(problem, seed), None]
        algorithm, asked = self.running[seed]
        if asked is not None:
            rows = history.y[len(history) - len(asked) :]
            over = np.array([[row[j] - o.limit for j, o in enumerate(problem.objectives) if o.limit is not None] for row in rows])
            asked.set("F", rows, "G", over.reshape(len(rows), -1))
            for one in asked:
                one.evaluated.update(["F", "G"])
            algorithm.tell(infills=asked)
        asked = algorithm.ask()
        self.running[seed][1] = asked
        return np.clip(asked.get("X"), 0.0, 1.0)

    def _algorithm(self, problem: Any, seed: int) -> Any:
        from pymoo.algorithms.moo.nsga3 import NSGA3
        from pymoo.core.problem import Problem
        from pymoo.termination import get_termination
        from pymoo.util.ref_dirs import get_reference_directions

        m = len(problem.objectives)
        parts = max(p for p in range(1, self.batch + 1) if math.comb(p + m - 1, m - 1) <= self.batch)
        limited = sum(o.limit is not None for o in problem.objectives)
        algorithm = NSGA3(get_reference_directions("das-dennis", m, n_partitions=parts), pop_size=self.batch)
        space = Problem(n_var=len(problem.space), n_obj=m, n_ieq_constr=limited, xl=0.0, xu=1.0)
        algorithm.setup(space, termination=get_termination("n_gen", 10_000), seed=derive(seed, "pymoo") % 2**31)
        return algorithm
