"""Deployments in one process: sites that answer at once, with the random numbers of a study or the system's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from fedpareto.deploy import deployment
from fedpareto.deploy.client import answer
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.parts import REPLAY
from fedpareto.deploy.party import Client
from fedpareto.deploy.server import Server
from fedpareto.deploy.serving import serve
from fedpareto.deploy.site import Site
from fedpareto.federation import blocks
from fedpareto.federation.data import load
from fedpareto.noise import derive
from fedpareto.study import load_study
from fedpareto.study.write import to_toml

BASE = {
    "name": "small",
    "seed": 3,
    "budget": 1,
    "data": {"name": "digits", "clients": 5},
    "model": {"name": "mlp", "hidden": [16]},
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 16, "learning_rate": 0.3, "sample_ratio": 0.6},
    "mechanism": {"name": "randomization", "noise_multiplier": 0.5, "clipping_norm": 1.0},
    "objectives": {"test_error": {}},
    "optimizer": {"name": "random"},
}


def study_of(folder: Path, **changed):
    """Return the small study with some sections changed: keys of a dict are added, None takes a section out."""
    table = dict(BASE)
    for name, value in changed.items():
        table[name] = {**table.get(name, {}), **value} if isinstance(value, dict) and name in ("training", "data") else value
    path = folder / "small.toml"
    text = to_toml({k: v for k, v in table.items() if v is not None})
    assert tomllib.loads(text)
    path.write_text(text)
    return load_study(path)


@dataclass
class Here:
    """Sites in this process; `spoil` may change an answer, `down` are those that do not answer."""

    clients: list
    down: set = field(default_factory=set)
    spoil: object = None
    asked: list = field(default_factory=list)  # what each was sent

    def ask(self, requests, patience):
        for k, message in requests.items():
            self.asked.append((k, message["do"], message.get("round")))
            if k in self.down:
                continue
            said = answer(self.clients[k], message)
            found = self.spoil(k, message, said) if self.spoil else said
            for one in found if isinstance(found, list) else [found]:
                if one is not None:
                    yield k, one


@dataclass
class World:
    """A deployment of a study, its sites and its server, in a folder."""

    study: object
    folder: Path
    settings: dict = field(default_factory=dict)
    replay: bool = True
    options: dict = field(default_factory=dict)
    key: Path | None = None  # that sites share; the server has the file beside it

    def __post_init__(self):
        drawn = draw_up(self.study, self.settings, **self.options)
        beside = self.study.path.parent  # a process finds a module of the user's own in one place
        (beside / deployment.FILE).write_text(drawn.text())
        self.agreed = deployment.read(beside)
        self.seed = derive(self.study.seed, "repeat", 0)
        self.here = Here([self.client(k) for k in range(self.agreed.clients)])

    @property
    def luck(self):
        return self.seed if self.replay else None

    def site(self, k):
        setup = blocks.setup_of(self.study.problem, self.seed)
        data, mine, tested = load(self.study.problem.data), setup.train_split().of(k), setup.test_split().of(k)
        return Site(data.x_train[mine], data.y_train[mine], data.x_test[tested], data.y_test[tested])

    def client(self, k, **rest):
        return Client(self.agreed, k, self.folder / f"client{k}", lambda: self.site(k), self.luck, self.key, **rest)

    @property
    def server(self):
        public = None if self.key is None else self.key.with_name(self.key.name + ".pub")
        return Server(self.agreed, self.folder / "server", self.luck, public)

    def serve(self, say=None):
        return serve(self.server, self.here, say)

    def weights(self, party="server"):
        from safetensors.torch import load_file

        return load_file(self.folder / party / "model.safetensors")

    def simulated(self):
        """Return the model that the study trains, and its test error after every round."""
        problem, values = self.study.problem, {name: [v] for name, v in self.settings.items()}
        module, _ = problem.train(self.settings, self.seed)
        way = problem.every_round(values, [self.seed], ["test_error"])["test_error"][0]
        return dict(module.state_dict()), way.tolist()


__all__ = ["REPLAY", "Here", "World", "study_of"]
