"""fedpareto train: one point trained again, its model kept, its card beside it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fedpareto import Store, load_study, run, train
from fedpareto.errors import FedparetoError, SettingError
from fedpareto.testing import continuous

WIDE = """
name = "wide"
seed = 2
budget = 4
repeats = 2
[data]
clients = 5
[model]
name = "mlp"
hidden = [[3, 12], 6]
[training]
rounds = [2, 6]
local_epochs = 2
batch_size = 16
learning_rate = [0.2, 0.5]
[mechanism]
name = "chain"
links = [{ name = "sparsification", connection_probability = 0.8 }, { name = "randomization", sigma = [0.001, 0.05] }]
[objectives.test_error]
[objectives.epsilon]
reference = 1e6
[optimizer]
name = "random"
batch = 4
"""

JUDGE = """
import json, sys
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

weights = load_file(sys.argv[1])
images, labels = load_digits(return_X_y=True)
test = torch.arange(len(labels)) % 5 == 4
x, y = torch.tensor(images, dtype=torch.float32)[test] / 16, torch.tensor(labels)[test]
layers = sorted({int(name.split(".")[0]) for name in weights})
for i, layer in enumerate(layers):
    x = x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
    x = x if i == len(layers) - 1 else x.relu()
assert "fedpareto" not in sys.modules
print(json.dumps({"error": float((x.argmax(1) != y).float().mean()), "width": len(weights[f"{layers[0]}.bias"])}))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "wide.toml"
    path.write_text(WIDE)
    run(load_study(path)).close()
    return path


@pytest.mark.parametrize("trial", range(4))
@pytest.mark.parametrize("repeat", [0, 1])
def test_the_model_is_the_one_that_its_row_was_measured_on(wide, trial, repeat):
    study = load_study(wide)
    with Store.read(wide.with_suffix(".db")) as store:
        row, stored = store.trials()[trial], store.repeat_measures(trial)[repeat]
    trained = train(study, row.settings, repeat)
    assert {n: v for n, v in trained.measures.items() if v == v} == {n: v for n, v in stored.items() if v == v}
    assert trained.module[1].out_features == row.settings["hidden_1"], "the narrow model itself"
    assert not trained.module.training


def test_the_file_is_judged_alike_by_another_process_without_fedpareto(wide, fedpareto, tmp_path):
    output = tmp_path / "kept.safetensors"
    done = fedpareto("train", wide, "--trial", 2, "--repeat", 1, "--output", output, "--json")
    assert done.status == 0, done.err
    said = json.loads(done.out)
    assert set(said) >= {"trial", "seed", "measures", "model", "card", "guarantee"}
    (tmp_path / "judge.py").write_text(JUDGE)
    judged = subprocess.run([sys.executable, tmp_path / "judge.py", output], capture_output=True, text=True, check=True)
    found = json.loads(judged.stdout)
    assert found["error"] == pytest.approx(said["measures"]["test_error"], abs=1e-7)
    assert found["width"] == said["settings"]["hidden_1"]
    with Store.read(wide.with_suffix(".db")) as store:
        assert said["measures"]["test_error"] == store.repeat_measures(2)[1]["test_error"]


def test_the_file_loads_into_the_model_that_the_study_builds(wide, fedpareto, tmp_path):
    output = tmp_path / "kept.safetensors"
    said = json.loads(fedpareto("train", wide, "--output", output, "--json").out)
    module = load_study(wide).problem.module(said["settings"])
    module.load_state_dict(load_file(output))
    with safe_open(output, "pt") as held:
        assert held.metadata()["trial"] == str(said["trial"])


def test_the_card_says_settings_guarantee_and_hashes(wide, fedpareto, tmp_path):
    output = tmp_path / "kept.safetensors"
    done = fedpareto("train", wide, "--pick", "--prefer", "test_error", "--output", output)
    assert re.match(r"training trial \d+, repeat 0.*, about \d+ s\n", done.err)
    assert done.status == 0, done.err
    assert "equals that of repeat 0" in done.out or "on the way" in done.out
    card = output.with_suffix(".md").read_text()
    for heading in ("Settings", "Data", "Measures", "What is promised", "What is not promised", "Versions and hashes"):
        assert f"\n## {heading}\n" in card
    assert "ε = " in card
    assert "(proxy: Kang 2023, Eq. 13)" in card
    for path in (output, wide):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in card


@pytest.mark.parametrize(("words", "says"), [
    (["--trial", 99], "--trial: must be a trial that was measured, found 99; measured are 0 to 3"),
    (["--trial", 1, "--pick"], "--trial must stand without --pick, found both"),
    (["--prefer", "test_error"], "--limit and --prefer must go with --pick"),
    (["--output", "model.pt"], "--output: must end in .safetensors, found 'model.pt'"),
    (["--output", "nowhere/model.safetensors"], "--output: must be in a folder that exists, found nowhere"),
    (["--repeat", -1], "repeat: must be at least 0, found -1"),
    (["--pick", "--limit", "test_error=-1"], "some trial must hold test_error ≤ -1"),
])
def test_what_cannot_be_trained_is_refused(wide, fedpareto, words, says):
    done = fedpareto("train", wide, *words)
    assert done.status == 2
    assert says in done.err


def test_a_card_does_not_overwrite_what_is_no_card(wide, fedpareto, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    done = fedpareto("train", wide, "--output", tmp_path / "README.safetensors")
    assert done.status == 2
    assert "--output (the model card): must be a new file or a model card to write again, found " in done.err
    assert (tmp_path / "README.md").read_text() == "mine"
    for _ in range(2):  # a card of ours is written anew
        assert fedpareto("train", wide, "--trial", 1, "--output", tmp_path / "model.safetensors").status == 0


def test_files_are_named_after_what_was_trained(wide, fedpareto):
    names = set()
    for words in (["--trial", 1], ["--trial", 1, "--repeat", 1], ["--trial", 0]):
        names.add(json.loads(fedpareto("train", wide, *words, "--json").out)["model"])
    assert {name.rsplit("wide-")[-1] for name in names} == {"trial1.safetensors", "trial1-repeat1.safetensors", "trial0.safetensors"}


def test_a_part_of_the_users_own_that_fails_is_one_clear_error(tiny_study, monkeypatch):
    study = load_study(tiny_study)
    monkeypatch.setattr(type(study.problem.mechanism), "protect", lambda *_: [][0])
    with pytest.raises(FedparetoError, match="must run to its end to keep a model, found IndexError: list index out of range"):
        train(study, {"learning_rate": 0.1, "sigma": 0.5, "clipping_norm": 1.0})


def test_training_that_diverges_leaves_no_model(tiny_study, tmp_path):
    study = load_study(tiny_study)
    wild = {"learning_rate": 0.5, "sigma": 0.5, "clipping_norm": 1.0}
    broken = study.problem.__class__(study.problem.data, study.problem.model,
                                     study.problem.training.__class__(1e8, rounds=2, local_steps=3, batch_size=8),
                                     study.problem.mechanism, ())
    with pytest.raises(FedparetoError, match="must converge to keep a model, found that it diverged in round 1"):
        train(study.__class__("wild", broken, study.optimizer, 1), wild)


def test_a_problem_that_is_no_federation_has_no_model():
    from fedpareto import Random, Study
    problem = continuous(lambda x: x, 2, 2)
    with pytest.raises(SettingError, match="must be of a federation to train a model, found Function"):
        train(Study("f", problem, Random(), 1), {})


def test_settings_must_be_complete(tiny_study):
    with pytest.raises(SettingError, match="must hold every searched setting, found no 'learning_rate'"):
        train(load_study(tiny_study), {})


def test_the_global_generator_and_threads_are_left_alone(tiny_study):
    study = load_study(tiny_study)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(study, {"learning_rate": 0.1, "sigma": 0.5, "clipping_norm": 1.0})
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
