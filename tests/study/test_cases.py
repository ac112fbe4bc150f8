"""Over which clients an objective is taken: the answer is of those that were asked for, or there is none."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto import load_study
from fedpareto.errors import StudyError
from fedpareto.federation import MEASURES

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
    assert "Of the worst client there are test_error, test_loss," in said
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


REFUSED = {"utility_lost", "loss_lost", "upload_bytes", "upload_bytes_per_round", "download_bytes", "download_bytes_per_round", "size_ratio"}
SAME_FOR_ALL = {"decryption_seconds", "gu24_eq4"}  # every client decrypts the same sum; a round takes as long as its slowest client


@pytest.mark.parametrize("name", MEASURES)
def test_the_worst_case_of_every_measure_is_kept_or_refused(asking, name):
    measure = MEASURES[name]
    if measure.source == "settings":
        assert measure.of_worst(name) == name
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
        worst = measure.of_worst(name)
        assert worst is None or MEASURES[worst].of_worst(worst) == worst


def test_a_measure_on_request_is_in_rows_only_where_it_is_asked_for(asking):
    usual = asking("test_error", "average").problem
    assert "kang23_eq14_worst" not in usual.measure({"learning_rate": [0.1]}, [1])
    assert "kang23_eq14_worst" in usual.every_round({"learning_rate": [0.1]}, [1], ["kang23_eq14_worst"])
