"""Over which clients an objective is taken: the answer is of those that were asked for, or there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto import load_study
from fedpareto.errors import StudyError
from fedpareto.federation import MEASURES
from fedpareto.federation.blocks import setup_of
from fedpareto.federation.cohorts import drawn
from fedpareto.federation.data import load

STUDY = """\
budget = 4

[data]
clients = 6
split = "unequal"
alpha = 1.0

[model]
name = "lr"

[training]
rounds = 2
local_epochs = 1
batch_size = 16
learning_rate = [0.05, 0.2]
sample_ratio = 0.5

[mechanism]
name = "MECHANISM"

[cost]
step_seconds = 0.1

[objectives.it]
measure = "MEASURE"
case = "CASE"
reference = 100.0
"""


@pytest.fixture
def asking(tmp_path):
    """Read a study that asks for a measure of some clients."""

    def read(measure, case, mechanism="none"):
        path = tmp_path / "case.toml"
        path.write_text(STUDY.replace("MEASURE", measure).replace("CASE", case).replace("MECHANISM", mechanism))
        return load_study(path)

    return read


@pytest.mark.parametrize("measure", ["utility_lost", "upload_bytes", "upload_bytes_per_round", "download_bytes",
                                     "download_bytes_per_round", "size_ratio"])
def test_a_measure_that_is_not_one_of_clients_has_no_worst_client(asking, measure):
    with pytest.raises(StudyError) as refused:
        asking(measure, "worst")
    said = str(refused.value)
    assert f"line 26, objectives.it.case: must be average for {measure}, found worst: it is not measured client by client." in said
    assert "There are test_error, test_loss, kang23_eq15, parameters_shared, training_seconds, kang23_eq14 and measures of your own." in said
    assert asking(measure, "average").problem.objectives[0].measure == measure


def test_eq_14_of_the_worst_client_is_the_slowest_one_s_seconds_and_the_server_s(asking):
    problem = asking("kang23_eq14", "worst", "batchcrypt").problem
    assert problem.objectives[0].measure == "kang23_eq14_worst"
    found = problem.measure({"learning_rate": [0.1, 0.2]}, [1, 2])
    server = found["kang23_eq14"] - found["training_seconds"]
    np.testing.assert_allclose(found["kang23_eq14_worst"], found["training_seconds_worst"] + server)
    assert (found["kang23_eq14_worst"] > 1.1 * found["kang23_eq14"]).all()  # clients hold unequal shares


@pytest.mark.parametrize(("measure", "mechanism"), [("gu24_eq2", "randomization\"\nsigma = 0.1 # \""), ("gu24_eq4", "none"),
                                                    ("decryption_seconds", "batchcrypt"), ("test_error_worst", "none")])
def test_what_is_the_same_for_every_client_or_of_the_worst_already_may_be_asked_for(asking, measure, mechanism):
    assert asking(measure, "worst", mechanism).problem.objectives[0].measure == measure


REFUSED = {"utility_lost", "loss_lost", "xiao25_eq5", "test_error_equal", "test_loss_equal", "parameters_shared_by_size",
           "training_seconds_by_size", "kang23_eq14_by_size", "kang23_eq15_by_size", "upload_bytes", "upload_bytes_per_round", "download_bytes", "download_bytes_per_round", "size_ratio"}
SAME_FOR_ALL = {"decryption_seconds", "gu24_eq4"}  # every client decrypts the same sum; a round takes as long as its slowest client


@pytest.mark.parametrize("name", MEASURES)
def test_the_worst_case_of_every_measure_is_kept_or_refused(asking, name):
    measure = MEASURES[name]
    if measure.source == "settings":
        assert measure.of_case(name, "worst") == name
        return
    mechanism = 'sparsification"\nprivate_fraction = 0.5 # "' if measure.needs == ("private_fraction",) else "batchcrypt"
    if name in REFUSED:
        with pytest.raises(StudyError, match=f"must be average for {name}, found worst"):
            asking(name, "worst", mechanism)
        return
    problem = asking(name, "worst", mechanism).problem
    chosen = problem.objectives[0].measure
    if chosen == name:
        assert name.endswith("_worst") or name in SAME_FOR_ALL
        return
    found = problem.measure({"learning_rate": [0.1, 0.2]}, [1, 2])
    assert (found[chosen] >= found[name]).all()
    if name != "parameters_shared":  # every client has the same model, and sends as much of it
        assert (found[chosen] > found[name]).any()


def test_every_measure_is_refused_or_has_its_worst_client():
    for name, measure in MEASURES.items():
        worst = measure.of_case(name, "worst")
        assert worst is None or MEASURES[worst].of_case(worst, "worst") == worst


def test_every_measure_is_refused_or_has_its_weights_of_clients():
    for name, measure in MEASURES.items():
        for case in ("equal", "by_size"):
            chosen = measure.of_case(name, case)
            assert (chosen is None) == (name in REFUSED - {"xiao25_eq5"} or name.endswith("_worst") or (name, case) == ("xiao25_eq5", "by_size"))
            assert chosen is None or {MEASURES[chosen].source, MEASURES[chosen].reference} == {measure.source, measure.reference}


@pytest.mark.parametrize(("measure", "case"), [("test_error", "equal"), ("test_loss", "equal"), ("training_seconds", "by_size"),
                                               ("kang23_eq14", "by_size"), ("kang23_eq15", "by_size")])
def test_weights_of_clients_are_those_asked_for(asking, measure, case):
    sparse = measure == "kang23_eq15"
    problem = asking(measure, case, 'sparsification"\nprivate_fraction = 0.5 # "' if sparse else "batchcrypt").problem
    chosen = problem.objectives[0].measure
    assert chosen == f"{measure}_{case}"
    found = problem.measure({"learning_rate": [0.1, 0.2]}, [1, 2])
    assert (found[chosen] != found[measure]).all()  # clients hold unequal shares
    assert (found[chosen] <= found[f"{measure}_worst"]).all() if f"{measure}_worst" in found else True


def test_counting_clients_by_size_or_alike_is_a_mean_over_them_by_hand(asking):
    """By hand, over the clients of every round: how long each trains follows from what it holds."""
    problem = asking("training_seconds", "by_size").problem
    setup = setup_of(problem, 3)
    sizes = setup.train_split().sizes
    expected = alike = 0.0
    for t in range(2):
        who = drawn(3, t, 6, np.array([0.5]), "fixed").order[:3]
        held = sizes[who]
        seconds = np.ceil(held / 16) * 0.1 + 1.2e-10 * held * 650
        expected += np.average(seconds, weights=held)
        alike += seconds.mean()
    found = problem.measure({"learning_rate": [0.1]}, [3])
    assert found["training_seconds_by_size"][0] == pytest.approx(expected, rel=1e-6)
    assert found["training_seconds"][0] == pytest.approx(alike, rel=1e-6)


def test_errors_of_clients_alike_are_the_mean_over_their_shares_of_the_test_images(asking):
    problem = asking("test_error", "equal").problem
    model, found = problem.train({"learning_rate": 0.1}, 3)
    data, split = load(problem.data), setup_of(problem, 3).test_split()
    with torch.no_grad():
        wrong = model(torch.from_numpy(data.x_test) * data.scale + data.shift).argmax(1).numpy() != data.y_test
    shares = [wrong[split.of(k)] for k in range(6) if len(split.of(k))]
    assert found["test_error_equal"] == pytest.approx(np.mean([s.mean() for s in shares]))
    assert found["test_error"] == pytest.approx(wrong.mean())
    assert found["test_error"] != pytest.approx(found["test_error_equal"])
    trivial = problem.trivial([3])[0]
    assert 0 < trivial["test_error_equal"] < 1


def test_a_measure_on_request_is_in_rows_only_where_it_is_asked_for(asking):
    usual = asking("test_error", "average").problem
    assert "kang23_eq14_worst" not in usual.measure({"learning_rate": [0.1]}, [1])
    assert "kang23_eq14_worst" in usual.every_round({"learning_rate": [0.1]}, [1], ["kang23_eq14_worst"])
