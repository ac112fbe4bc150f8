"""Studies that name mechanisms, chains and privacy: read, refused in words, shown with their true guarantee."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from fedpareto.errors import SettingError, StudyError
from fedpareto.federation import Cost
from fedpareto.federation.calibrate import calibrate
from fedpareto.mechanisms import Chain, Pruning, Quantization, Randomization
from fedpareto.study import load_study

EXAMPLES = Path(__file__).parent.parent / "examples"

CHAIN = """
[[mechanism.links]]
name = "randomization"
noise_multiplier = [0.5, 2.0]
clipping_norm = 1.0

[[mechanism.links]]
name = "quantization"
bits = { choices = [4, 8] }

[[mechanism.links]]
name = "quantization"
bits = [1, 4]
"""


@pytest.fixture
def write(tiny_study):
    """Return a way to write the tiny study with another mechanism, and more."""
    def with_mechanism(mechanism, objectives='[objectives.utility_loss]\nmeasure = "test_error"\n', more="", training=""):
        text = tiny_study.read_text()
        start, end = text.index("[mechanism]"), text.index("[optimizer]")
        text = text[:start].rstrip() + f"\n{training}\n[mechanism]\n{mechanism}\n{objectives}\n{more}\n" + text[end:]
        tiny_study.write_text(text)
        return tiny_study

    return with_mechanism


def test_a_chain_is_read_link_by_link_and_written_back(write):
    path = write(f'name = "chain"\n{CHAIN}')
    study = load_study(path)
    chain = study.problem.mechanism
    assert isinstance(chain, Chain)
    assert [type(link) for link in chain.links] == [Randomization, Quantization, Quantization]
    assert set(study.problem.space.names) == {"learning_rate", "noise_multiplier", "bits_2", "bits_3"}
    assert [link["name"] for link in study.description["mechanism"]["links"]] == ["randomization", "quantization", "quantization"]


def test_a_point_of_a_chain_becomes_a_study_file_that_trains_it(write, fedpareto):
    path = write(f'name = "chain"\n{CHAIN}')
    assert fedpareto("run", path).status == 0
    picked = path.with_name("picked.toml")
    status, out, err = fedpareto("pick", path, "--output", picked)
    assert (status, err) == (0, "")
    fixed = tomllib.loads(picked.read_text())["mechanism"]["links"]
    assert [type(link["bits"]) for link in fixed[1:]] == [int, int]
    assert load_study(picked).problem.space.names == ()
    assert "client level" in out
    assert "(view server)" in out


def test_widths_of_a_picked_point_are_fixed_too(write, fedpareto, tiny_study):
    tiny_study.write_text(tiny_study.read_text().replace('name = "lr"', 'name = "mlp"\nhidden = [[2, 6]]'))
    path = write('name = "none"')
    assert "hidden_1" in load_study(path).problem.space.names
    assert fedpareto("run", path).status == 0
    status, _, err = fedpareto("pick", path, "--output", path.with_name("picked.toml"))
    assert (status, err) == (0, "")
    assert load_study(path.with_name("picked.toml")).problem.space.names == ()


EPSILON = '[objectives.utility_loss]\nmeasure = "test_error"\n[objectives.epsilon]\nreference = 100\n'

REFUSED = {
    "no links": ('name = "chain"', EPSILON, "", "mechanism.links", "must be a list of at least one mechanism"),
    "a link without a name": ('name = "chain"\nlinks = [{bits = 8}]', EPSILON, "", "mechanism.links.1.name",
                              "must name one of batchcrypt, chain, none"),
    "a link with a wrong setting": ('name = "chain"\nlinks = [{name = "quantization", bits = 0}]', EPSILON, "", "mechanism.links.1.bits",
                                    "must be at least 1, found 0"),
    "a wrong key beside links": ('name = "chain"\nlink = []\nlinks = [{name = "none"}]', EPSILON, "", "mechanism.link", "Did you mean"),
    "zero bits": ('name = "quantization"\nbits = 0', "", "", "mechanism.bits", "must be at least 1, found 0"),
    "everything private": ('name = "sparsification"\nprivate_fraction = 1.0', "", "", "mechanism.private_fraction",
                           "must be at most 0.9999"),
    "neither sigma nor multiplier": ('name = "randomization"', "", "", "mechanism",
                                     "exactly one of sigma and noise_multiplier must be given"),
    "no noise where ε is asked": ('name = "randomization"\nsigma = 0.0', EPSILON, "", "mechanism.sigma",
                                  "must add noise where ε is asked for"),
    "a range of noise from zero": ('name = "randomization"\nsigma = [0.0, 1.0]', EPSILON, "", "mechanism.sigma", "Raise its lower end"),
    "ε of a mechanism without noise": ('name = "quantization"', EPSILON, "", "objectives.epsilon", "needs a mechanism with Gaussian noise"),
    "a measure of another mechanism": ('name = "quantization"', '[objectives.kang23_eq15]', "", "objectives.kang23_eq15",
                                       "needs a mechanism with private_fraction, found Quantization"),
    "an unknown measure": ('name = "none"', '[objectives.epsilons]\nreference = 1', "", "objectives.epsilons", "Did you mean 'epsilon'"),
    "an unknown view": ('name = "randomization"\nsigma = 1.0', EPSILON, '[privacy]\nview = "sever"', "privacy.view",
                        "Did you mean 'server'"),
    "sums weighted by size": ('name = "randomization"\nsigma = 1.0', EPSILON, '[privacy]\nview = "secagg"', "training.weighting",
                              "must be uniform"),
    "a target without an objective": ('name = "randomization"\nsigma = 1.0', '[objectives.test_error]', "[privacy]\ntarget_epsilon = 3",
                                      "privacy.target_epsilon", "Add [objectives.epsilon]"),
    "a cost below zero": ('name = "none"', '[objectives.test_error]', "[cost]\nstep_seconds = -1", "cost.step_seconds",
                          "must be at least 0"),
}


@pytest.mark.parametrize(("mechanism", "objectives", "more", "key", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_words(write, mechanism, objectives, more, key, says):
    training = 'weighting = "size"' if key == "training.weighting" else ""
    path = write(mechanism, objectives or '[objectives.test_error]', more, training)
    with pytest.raises(StudyError) as refused:
        load_study(path)
    assert key in str(refused.value)
    assert says in str(refused.value)


def test_a_ratio_that_asks_for_no_client_is_refused(write):
    path = write('name = "none"', training="sample_ratio = 0.01")
    with pytest.raises(StudyError, match=r"must ask for at least one client, found 0\.01 of"):
        load_study(path)


def test_a_target_epsilon_is_the_limit_of_the_objective(write):
    path = write('name = "randomization"\nsigma = 1.0', '[objectives.test_error]\n[objectives.epsilon]\n',
                 "[privacy]\ntarget_epsilon = 3.0")
    objective = load_study(path).problem.objectives[1]
    assert (objective.limit, objective.reference) == (3.0, 3.0)


def test_every_front_carries_the_true_epsilon_and_its_statement(write, fedpareto):
    path = write('name = "randomization"\nsigma = [0.01, 0.1]', '[objectives.test_error]\n[objectives.kang23_eq13]\n')
    status, out, err = fedpareto("run", path)
    assert (status, "error" in err) == (0, False)
    assert "true ε (server)" in out
    assert "kang23_eq13 is a proxy (Kang 2023, Eq. 13), not a privacy guarantee." in out
    for part in ("client level", "adjacency zero_out", "fixed sampling", "view server", "accountant: analytic Gaussian", "δ = "):
        assert part in out
    assert "The search itself is not counted" in out
    front = json.loads(fedpareto("front", path, "--json").out)
    assert front["privacy"]["view"] == "server"
    assert "client level" in front["privacy"]["statement"]
    assert front["points"][0]["measures"]["epsilon"] == front["points"][0]["measures"]["epsilon_server"]
    assert "What is promised" in path.with_suffix(".html").read_text()


def test_a_study_without_noise_says_that_nothing_is_promised(write, fedpareto):
    path = write('name = "sparsification"\nprivate_fraction = [0.0, 0.5]', '[objectives.test_error]\n[objectives.kang23_eq15]\n')
    status, out, err = fedpareto("run", path)
    assert (status, "error" in err) == (0, False)
    assert "No true ε is promised" in out
    assert " none " in out


def test_a_search_on_private_data_is_counted(write, fedpareto):
    path = write('name = "randomization"\nsigma = [0.5, 1.0]', '[objectives.test_error]\n[objectives.epsilon]\nreference = 1000\n',
                 "[privacy]\nprivate_data = true")
    status, out, err = fedpareto("run", path)
    assert (status, "error" in err) == (0, False)
    assert "The search trained on private data. All of it together: ε = " in out
    assert "It counts 2 trials" in out


def test_plan_prints_choices_that_hold_the_target(fedpareto):
    status, out, err = fedpareto("plan", "--epsilon", 4, "--clients", 100, "--cohort", "10,50", "--rounds", 20, "--json")
    assert (status, err) == (0, "")
    choices = json.loads(out)["choices"]
    assert [set(c) for c in choices] == [{"noise_multiplier", "sigma", "clipping_norm", "cohort", "rounds", "epsilon", "delta", "view"}] * 2
    assert all(3.9 < c["epsilon"] <= 4 for c in choices)
    assert [c["cohort"] for c in choices] == [10, 50]


def test_plan_prints_a_table_a_statement_and_a_figure(fedpareto, tmp_path):
    figure = tmp_path / "plan.png"
    status, out, _ = fedpareto("plan", "--epsilon", 4, "--clients", 100, "--view", "secagg", "--figure", figure)
    assert status == 0
    assert "noise on the mean" in out
    assert "view secagg" in out
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_plan_at_record_level_says_what_a_silo_must_do(fedpareto):
    status, out, _ = fedpareto("plan", "--epsilon", 4, "--clients", 5, "--unit", "record", "--records", 1000, "--batch-size", 50,
                               "--local-steps", 10, "--rounds", 10)
    assert status == 0
    assert "10 local steps of a client with 1,000 records, each in a step by a chance of its own of 0.05" in out
    assert "clipping_norm" in out
    assert "noise on the mean" in out


@pytest.mark.parametrize(("words", "says"), [
    (["--epsilon", 4, "--clients", 10, "--cohort", "many"], "--cohort: must be a whole number, or several with commas, found 'many'"),
    (["--epsilon", 0, "--clients", 10], "target_epsilon: must be above 0"),
    (["--epsilon", 4, "--clients", 10, "--delta", 1.5], "target_delta: must be at most 0.5"),
    (["--epsilon", 4, "--clients", 10, "--cohort", 11], "cohort: must lie between 1 and the 10 clients, found 11"),
    (["--epsilon", 4, "--clients", 10, "--sigma", 0], "sigma: must be above 0"),
    (["--epsilon", 4, "--clients", 100, "--view", "secagg", "--colluders", -90], "colluders: must be at least 0, found -90"),
    (["--epsilon", 4, "--clients", 100, "--view", "secagg", "--dropouts", -3], "dropouts: must be at least 0, found -3"),
    (["--epsilon", "nan", "--clients", 10], "target_epsilon: must be a finite number, found nan"),
    (["--epsilon", 4, "--clients", 10, "--delta", "nan"], "target_delta: must be a finite number, found nan"),
])
def test_a_plan_that_cannot_be_is_refused_in_words(fedpareto, words, says):
    status, _, err = fedpareto("plan", *words)
    assert status == 2
    assert says in err


def test_calibrate_measures_and_writes_the_cost_into_the_study(write, fedpareto):
    path = write('name = "none"', '[objectives.test_error]\n[objectives.training_seconds]\nreference = 10\n')
    before = load_study(path)
    status, out, err = fedpareto("calibrate", path, "--json")
    assert (status, err) == (0, "")
    assert load_study(path).problem.cost == before.problem.cost == Cost()
    assert json.loads(out)["step_seconds"] >= 0
    assert fedpareto("calibrate", path, "--write").status == 0
    after = load_study(path).problem.cost
    assert after != Cost()
    assert fedpareto("calibrate", path, "--write").status == 0
    assert path.read_text().count("[cost]") == 1


def test_the_calibrated_model_predicts_the_steps_it_was_fitted_to(write):
    problem = load_study(write('name = "none"')).problem
    cost = calibrate(problem, seconds=0.5)
    assert 0 < cost.step_seconds + cost.parameter_seconds * 1000 < 0.1


@pytest.mark.parametrize("name", ["randomization", "sparsification", "compression"])
def test_the_example_studies_can_be_read_and_say_what_they_trade(name):
    study = load_study(EXAMPLES / f"{name}.toml")
    assert len(study.problem.objectives) >= 2
    assert study.name == name


def test_links_in_python_are_checked_as_in_a_file():
    with pytest.raises(SettingError, match="exactly one of prune_rate and threshold"):
        Chain((Quantization(8), Pruning()))


def test_under_poisson_sampling_a_server_that_sees_uploads_counts_the_least_share_of_noise():
    from fedpareto import Data, Federation, Lr, Objective, Randomization, Training
    from fedpareto.privacy import epsilon
    problem = Federation(Data("digits", 25), Lr(), Training(0.1, rounds=4, local_steps=1, sampling="poisson", sample_ratio=0.36),
                         Randomization(2.0), (Objective("test_error"),))
    columns = problem.columns({}, 1)
    common = {"clipping_norm": 1.0, "cohort": 9.0, "clients": 25, "rounds": 4, "sampling": "poisson"}
    assert columns["epsilon_server"][0] == pytest.approx(float(epsilon(problem.privacy, noise=2.0 * 0.6, view="server", **common)))
    assert columns["epsilon_secagg"][0] == pytest.approx(float(epsilon(problem.privacy, noise=2.0, view="secagg", **common)))
    assert problem.guarantee({}, "server").epsilon == pytest.approx(columns["epsilon_server"][0])
