"""Study files that name a server step, a local step, a loss and measures of one's own."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from fedpareto import (
    Data,
    Federation,
    Lr,
    Random,
    Randomization,
    Study,
    Training,
    load_study,
    run,
    view,
)
from fedpareto.errors import ChangedStudy, StudyError
from fedpareto.federation import Adam, Average, Sgd

OWN = """
import torch

def error(scores, labels):
    return float((scores.argmax(1) != labels).mean())

def entropy(scores, labels):
    return torch.nn.functional.cross_entropy(scores, labels, reduction="none")
"""


@pytest.fixture
def study(tiny_study):
    tiny_study.with_name("my_parts.py").write_text(OWN)
    return tiny_study


def changed(path, **replaced):
    text = path.read_text()
    for old, new in replaced.values():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def test_a_server_step_is_named_and_its_settings_are_searched(study):
    text = study.read_text().replace("[objectives.utility_loss]", '[server]\nname = "adam"\nserver_learning_rate = [0.01, 0.1]\n\n'
                                                                  "[objectives.utility_loss]")
    study.write_text(text)
    loaded = load_study(study)
    assert isinstance(loaded.problem.server, Adam)
    assert isinstance(loaded.problem.local, Sgd)
    assert "server_learning_rate" in loaded.problem.space.names
    with run(loaded) as store:
        seen = view(loaded, store.trials())
    assert all("server_learning_rate" in p.settings for p in seen.points)


def test_without_a_section_the_server_averages(study):
    assert load_study(study).problem.server == Average()


def test_measures_and_losses_of_ones_own_are_named_by_dotted_path(study):
    changed(study, measure=('measure = "test_error"', 'measure = "my_parts:error"\ncase = "worst"\nreference = 1.0'),
            loss=("batch_size = 8", 'batch_size = 8\nloss = "my_parts:entropy"'))
    loaded = load_study(study)
    assert [o.measure for o in loaded.problem.objectives] == ["my_parts:error@worst", "kang23_eq13"]
    with run(loaded) as store:
        for trial in store.trials():
            assert trial.state == "done"
            assert trial.measures["my_parts:error@worst"] == pytest.approx(trial.measures["test_error_worst"], abs=1e-6)


@pytest.mark.parametrize(("old", "new", "says"), [
    ("[objectives.utility_loss]", '[server]\nname = "adams"\n[objectives.utility_loss]', "server.name: there is no 'adams'. Did you mean 'adam'?"),
    ("[objectives.utility_loss]", '[local]\nname = "sdg"\n[objectives.utility_loss]', "local.name: there is no 'sdg'. Did you mean 'sgd'?"),
    ("[objectives.utility_loss]", '[server]\nname = "momentum"\nserver_momentum = 1.5\n[objectives.utility_loss]',
     "server.server_momentum: must be at most 0.9999, found 1.5"),
    ('measure = "test_error"', 'measure = "my_parts:error"', "objectives.utility_loss.reference: must be given"),
    ("batch_size = 8", 'batch_size = 8\nloss = "entropy"', "training.loss: there is no loss 'entropy'"),
])
def test_faults_are_named_with_their_place(study, old, new, says):
    changed(study, one=(old, new))
    with pytest.raises(StudyError, match=r"line \d+") as refused:
        load_study(study)
    assert says in str(refused.value)


def test_a_database_begun_before_servers_and_losses_could_be_named_goes_on(finished_study):
    """Version 0.1 knew neither [server], [local] nor training.loss."""
    with closing(sqlite3.connect(finished_study.with_suffix(".db"))) as db, db:
        identity = json.loads(db.execute("SELECT identity FROM study").fetchone()[0])
    assert "server" not in identity
    assert "local" not in identity
    assert "loss" not in identity["training"]
    text = finished_study.read_text().replace("budget = 2", "budget = 3")
    finished_study.write_text(text)
    with run(load_study(finished_study)) as store:
        assert len(store) == 3
    finished_study.write_text(text + '\n[server]\nname = "momentum"\n')
    with pytest.raises(ChangedStudy, match="server"):
        run(load_study(finished_study))


def test_a_study_built_in_python_says_which_server_it_has_unless_it_averages():
    from dataclasses import dataclass, replace

    @dataclass(frozen=True)
    class Zero:
        def start(self, models, values):
            return ()

        def step(self, models, mean, memory, values):
            return models * 0, ()

    problem = Federation(Data("digits", 5), Lr(), Training(0.1, local_steps=1), Randomization(0.1), ())
    usual = Study("python", problem, Random(), 1).identity["problem"]
    assert "server" not in usual
    assert "local" not in usual
    assert "loss" not in usual["training"]
    other = Study("python", replace(problem, server=Zero()), Random(), 1).identity["problem"]
    assert other["server"]["name"].endswith("Zero")
    assert Study("python", replace(problem, server=Adam()), Random(), 1).identity["problem"]["server"]["server_beta1"] == 0.9


def test_a_server_of_ones_own_must_have_every_method(study):
    study.with_name("my_server.py").write_text("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass NoStart:\n"
                                               "    def step(self, models, mean, memory, values):\n        return models, ()\n")
    changed(study, one=("[objectives.utility_loss]", '[server]\nname = "my_server:NoStart"\n[objectives.utility_loss]'))
    with pytest.raises(StudyError, match="must be a frozen dataclass of settings with a method 'start'"):
        load_study(study)
