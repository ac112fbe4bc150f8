"""Train one point of a study once more and keep its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.errors import FedparetoError, SettingError
from fedpareto.evaluate import reason_of, training_seed
from fedpareto.federation import Federation
from fedpareto.files import write_again
from fedpareto.noise import derive
from fedpareto.privacy import Guarantee
from fedpareto.store import Store
from fedpareto.study import Study

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Trained:
    """A trained model, and everything that made it."""

    settings: dict[str, Any]
    repeat: int
    seed: int | None  # None on private data: it would take the noise off
    module: nn.Module
    measures: dict[str, float]
    guarantee: Guarantee | None


def train(
    study: Study, settings: Mapping[str, Any], repeat: int = 0, store: Store | None = None
) -> Trained:
    """Train a point as repeat number `repeat` of the study does, and return its model.

    The measures equal, bit for bit, those that the study stores for this repeat of a trial with
    these settings, on the same kind of machine. On private data that takes the study's store, whose
    secret the noise comes from; without it this is a training of its own, which costs privacy anew.
    """
    problem = study.problem
    if not isinstance(problem, Federation):
        raise SettingError(
            f"study {study.name}: must be of a federation to train a model, found "
            f"{type(problem).__name__}."
        )
    if repeat < 0:
        raise SettingError(f"repeat: must be at least 0, found {repeat}.")
    missing = [name for name in problem.space.names if name not in settings]
    if missing:
        raise SettingError(f"settings: must hold every searched setting, found no {missing[0]!r}.")
    seed = derive(training_seed(study, store), "repeat", repeat)
    try:
        module, measures = problem.train(settings, seed)
    except FedparetoError:
        raise
    except Exception as error:
        why = reason_of(error, problem.private)
        raise FedparetoError(
            f"training must run to its end to keep a model, found {why}. Mend it, or choose "
            "another trial."
        ) from error
    diverged = measures["diverged_round"]
    if not math.isnan(diverged):
        raise FedparetoError(
            f"training must converge to keep a model, found that it diverged in round "
            f"{diverged:.0f}. Choose another trial, or another repeat."
        )
    told = None if problem.private else seed
    promised = problem.guarantee(dict(settings))
    return Trained(dict(settings), repeat, told, module, measures, promised)


def write_weights(trained: Trained, path: Path, about: Mapping[str, str]) -> Path:
    """Write the model's parameters and buffers as safetensors, with some words about them."""
    from safetensors.torch import save

    tensors = {name: t.contiguous() for name, t in trained.module.state_dict().items()}
    write_again(path, save(tensors, {"format": "pt", **about}), "model")
    return path
