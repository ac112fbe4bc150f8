"""Optuna's samplers behind this package's interface, as its documentation would have a user call them: ask a batch, tell a batch."""

from __future__ import annotations

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
