"""With private_data = true, what a search shows costs what is stated, and nobody without its database can take the noise off."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from safetensors import safe_open

from fedpareto import Store, load_study, run, train, view
from fedpareto.errors import StoreError
from fedpareto.executors import here
from fedpareto.federation import blocks
from fedpareto.federation.blocks import row_seeds
from fedpareto.federation.data import load
from fedpareto.mechanisms import Randomization
from fedpareto.optimizers import OPTIMIZERS, Grid, Nsga2, Random
from fedpareto.privacy import epsilon
from fedpareto.problem import Objective
from fedpareto.report.evidence import evidence
from fedpareto.report.figures import write_figures
from fedpareto.report.page import page, page_data
from fedpareto.report.privacy import chosen_by, search_cost, statements
from fedpareto.space import Float, Space
from fedpareto.trials import Trial

STUDY = """\
name = "private"
seed = 1
budget = 3
repeats = 2

[data]
name = "digits"
clients = 20

[model]
name = "lr"

[training]
rounds = [2, 4]
local_steps = 1
batch_size = 8
sampling = "poisson"
sample_ratio = [0.2, 0.5]
learning_rate = { low = 0.1, high = 1.0, log = true }

[mechanism]
name = "randomization"
noise_multiplier = { low = 2.0, high = 8.0, log = true }
clipping_norm = [0.5, 2.0]

[privacy]
view = "secagg"
private_data = true
target_delta = 1e-3

[objectives.utility_loss]
measure = "test_error"

[objectives.epsilon]
reference = 10

[optimizer]
name = "random"
"""
ADAPTIVE = ('name = "random"', 'name = "nsga2"\npopulation = 4')
RELEASE = ('view = "secagg"', 'view = "release"')
UNIFORM = ('name = "random"', 'name = "random"\nsequence = "uniform"')


@pytest.fixture
def write(tmp_path):
    def written(*changes, name="study"):
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return path

    return written


def rows_of(store):
    return [store.repeat_measures(t.number) for t in store.trials()]


def seen_of(path):
    study = load_study(path)
    with run(study) as store:
        return view(study, store.trials()), store.trials()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The study as it stands, run once: its view and its trials."""
    path = tmp_path_factory.mktemp("finished") / "study.toml"
    path.write_text(STUDY)
    return seen_of(path)


def test_the_secret_is_drawn_once_and_decides_the_rows(write, tmp_path):
    study = load_study(write())
    with run(study, tmp_path / "one.db") as one, run(study, tmp_path / "two.db") as two:
        assert len(one.secret) == len(two.secret) == 64
        assert one.secret != two.secret
        assert [t.settings for t in one.trials()] == [t.settings for t in two.trials()]
        losses = [[r["test_loss"] for repeats in rows_of(store) for r in repeats] for store in (one, two)]
        assert len({*losses[0], *losses[1]}) == 12
        secret, rows = one.secret, rows_of(one)
    with run(study, tmp_path / "one.db") as again:
        assert (again.secret, rows_of(again)) == (secret, rows)


def test_a_study_that_is_not_private_has_no_secret_and_the_same_rows_in_every_database(write, tmp_path):
    study = load_study(write(("private_data = true", "private_data = false")))
    with run(study, tmp_path / "one.db") as one, run(study, tmp_path / "two.db") as two:
        assert one.secret is None
        assert rows_of(one) == rows_of(two)


def test_a_search_that_was_interrupted_goes_on_as_if_it_had_not_been(write, tmp_path):
    """The results of a training that was killed are lost; trained again, it gives the same."""
    study = load_study(write())
    with run(study) as store:
        whole, secret = rows_of(store), store.secret
    with closing(sqlite3.connect(study.path.with_suffix(".db"))) as db, db:
        db.execute("DELETE FROM repeats WHERE trial = 2 OR (trial = 1 AND repeat = 1)")
        db.execute("UPDATE trials SET state = 'pending', measures = NULL, spread = NULL, checksum = NULL WHERE number > 0")
    db.close()
    with run(study) as store:
        assert (rows_of(store), store.secret) == (whole, secret)


def test_train_gives_the_model_of_a_row_to_whoever_has_the_database_and_to_nobody_else(write):
    study = load_study(write())
    with run(study) as store:
        settings, measured = store.trials()[1].settings, store.repeat_measures(1)[1]
        kept = train(study, settings, 1, store)
        np.testing.assert_array_equal([kept.measures[n] for n in measured], [*measured.values()])
        assert kept.seed is None
        assert train(study, settings, 1).measures["test_loss"] != measured["test_loss"]


def test_nothing_that_is_written_or_printed_has_the_secret_or_a_seed_that_comes_of_it(write, fedpareto, tmp_path):
    path = write()
    printed = [fedpareto("run", path).out, fedpareto("front", path, "--json").out]
    trained = fedpareto("train", path, "--trial", 0, "--output", tmp_path / "model.safetensors")
    assert "Every measure equals that of repeat 0 in the row, bit for bit." in trained.out
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert "seed" not in file.metadata()
    told = json.loads(fedpareto("train", path, "--trial", 0, "--json").out)
    assert told["seed"] is None
    assert fedpareto("report", path, "--evidence").status == 0
    assert "all 3 proposals follow" in fedpareto("verify", path).out
    with Store.read(path.with_suffix(".db")) as store:
        secret = store.secret
    texts = [f.read_text() for f in tmp_path.iterdir() if f.suffix in (".html", ".md", ".toml")]
    assert len(texts) == 4 + 1
    assert not any(secret in text for text in [*printed, trained.out, json.dumps(told), *texts])


def test_a_further_repeat_which_nothing_counts_is_refused(write, fedpareto, tmp_path):
    path = write()
    assert fedpareto("run", path).status == 0
    ended = fedpareto("train", path, "--trial", 0, "--repeat", 2, "--output", tmp_path / "m.safetensors")
    assert ended.status == 2
    assert "--repeat: must be one that the study trained of trial 0, found 2: on private data a further training" in ended.err


def test_whoever_picks_or_trains_a_point_is_told_what_the_search_costs(write, fedpareto, tmp_path):
    path = write()
    assert fedpareto("run", path).status == 0
    for words in (["pick", path], ["train", path, "--trial", "0", "--output", tmp_path / "m.safetensors"]):
        assert "The search trained on private data. All of it together: ε = " in fedpareto(*words).out
        said = json.loads(fedpareto(*words, "--json").out)["search"]
        assert "All of it together" in said[0]
    assert "each ε is that of one training alone" in fedpareto("compare", path).out


def test_an_adaptive_search_pays_for_the_largest_budget_it_was_given(write, fedpareto):
    path = write(ADAPTIVE)
    assert fedpareto("run", path, "--budget", 8).status == 0
    text = path.read_text()
    path.write_text(text.replace("budget = 3", "budget = 2"))
    assert "It counts 8 trials × 2 trainings" in fedpareto("front", path).out
    assert "It counts 8 trials × 2 trainings" in fedpareto("run", path).out


def test_other_data_or_code_never_meet_the_same_noise(write):
    """Else the difference of two models would be the bare difference of what clients sent."""
    problem = load_study(write()).problem
    point = {name: [variable.decode(0.5)] for name, variable in zip(problem.space.names, problem.space.variables, strict=True)}
    first = row_seeds(problem, point, [7])
    assert row_seeds(problem, point, [7]) == first
    other = replace(load(problem.data), x_train=load(problem.data).x_train[::-1].copy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "load", lambda data: other)
        assert row_seeds(problem, point, [7]) != first

    @dataclass(frozen=True)
    class Unclipped(Randomization):
        pass

    held = {f.name: getattr(problem.mechanism, f.name) for f in fields(problem.mechanism)}
    assert row_seeds(replace(problem, mechanism=Unclipped(**held)), point, [7]) != first


def test_an_adaptive_search_with_a_mechanism_of_ones_own_has_no_known_price(write):
    @dataclass(frozen=True)
    class Own(Randomization):
        pass

    study = load_study(write(ADAPTIVE))
    held = {f.name: getattr(study.problem.mechanism, f.name) for f in fields(study.problem.mechanism)}
    point = {v.name: v.decode(0.5) for v in study.problem.space.variables}
    assert study.problem.search_guarantee([point], 1, 3, "adaptive") is not None
    own = replace(study.problem, mechanism=Own(**held))
    assert own.search_guarantee([point], 1, 3, "adaptive") is None
    assert own.search_guarantee([point], 1, 3, "listed") is not None


def test_trainings_of_before_that_shared_their_noise_are_refused(write, fedpareto):
    path = write()
    run(load_study(path)).close()
    with closing(sqlite3.connect(path.with_suffix(".db"))) as db, db:
        db.execute("ALTER TABLE study DROP COLUMN secret")
        db.execute("ALTER TABLE sessions DROP COLUMN work")
        for table in ("study", "trials", "repeats", "sessions"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        for table in ("audits", "data", "baselines"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 2")
    db.close()
    for words in (("front", path), ("run", path)):
        status, _, err = fedpareto(*words)
        assert status == 2
        assert "must hold trainings on private data that each have noise of their own, found those of an older fedpareto" in err
    with pytest.raises(StoreError):
        run(load_study(path))


@dataclass(frozen=True)
class Breaks:
    """A problem whose error tells of its data."""

    private: bool
    space: Space = Space((Float("x", 0.0, 1.0),))
    objectives: tuple[Objective, ...] = (Objective("y"),)
    block: int = 2

    failures = {}  # noqa: RUF012

    def measure(self, values, seeds):
        raise ValueError("client 3 holds 17 images")


@pytest.mark.parametrize("private", [False, True])
def test_why_a_training_failed_is_told_without_the_words_of_its_error(private):
    trial = Trial(0, 0, (0.5,), {"x": 0.5}, repeats_left=(0,))
    left = [[trial], []]
    ((result,),) = here(Breaks(private), lambda: left.pop(0), 0)
    assert ("ValueError" in result.error) != private
    assert ("client 3" in result.error) != private


def test_pages_leave_out_who_holds_what_and_say_why(finished, write, tmp_path):
    seen, trials = finished
    data = page_data(seen)
    assert (data["split"], data["clients"]) == (None, None)
    assert data["noSplit"].startswith("Who holds what is left out")
    text = evidence(seen, trials)
    assert "Who holds what is left out" in text
    assert "training examples" not in text
    assert "The split is the same in every training" in text
    assert not [p for p in write_figures(seen, tmp_path / "figure") if "split" in p.name]
    open_seen, _ = seen_of(write(("private_data = true", "private_data = false"), name="open"))
    assert (len(page_data(open_seen)["split"]), page_data(open_seen)["noSplit"]) == (20, "")


def test_every_word_of_the_page_about_measures_is_of_one_that_may_be_shown(finished):
    seen, _ = finished
    shown = {"test_error_worst", "test_loss", "test_loss_worst", "epsilon_server", "epsilon_secagg", "epsilon_release", "gu24_eq2", "kang23_eq13",
             "kang23_eq13_smooth", "xiao25_eq7", "xiao25_eq7_printed", "diverged_round"}
    assert page_data(seen)["points"]["measures"].keys() == shown
    assert "upload_bytes" not in page(seen).split('id="data">')[1].split("</script>")[0]


def price(study, noise_multiplier, ratio, rounds):
    privacy = replace(study.problem.privacy, private_data=False)
    m = 20 * ratio
    return float(epsilon(privacy, noise=noise_multiplier / m**0.5, clipping_norm=1.0, cohort=m, clients=20, rounds=rounds, sampling="poisson"))


def told(seen):
    lines = search_cost(seen)
    assert lines[0].startswith("The search trained on private data. All of it together: ε = ")
    return float(lines[0].split("ε = ")[1].split()[0]), " ".join(lines)


def test_a_search_that_looks_at_no_result_pays_for_the_points_that_it_tried(finished):
    seen, trials = finished
    found, text = told(seen)
    tried = [t.settings for t in trials]
    worst = [min(s["noise_multiplier"] for s in tried), max(s["sample_ratio"] for s in tried), max(s["rounds"] for s in tried)]
    assert found == pytest.approx(price(seen.study, worst[0], worst[1], worst[2] * 3 * 2), rel=5e-3)
    assert "each priced as the worst of them" in text


def test_an_adaptive_search_pays_for_a_budget_of_the_worst_point_that_it_could_have_tried(write):
    seen, _ = seen_of(write(ADAPTIVE, RELEASE))
    found, text = told(seen)
    exact = price(seen.study, 2.0, 0.5, 4 * 3 * 2)
    assert exact * 0.995 <= found <= exact * 1.01
    assert "It counts 3 trials × 2 trainings × 4 rounds" in text
    assert "because which points are trained depends on what earlier ones showed; a narrower range costs less" in text
    more = replace(seen, study=replace(seen.study, budget=30))
    assert told(more)[0] == pytest.approx(price(seen.study, 2.0, 0.5, 4 * 30 * 2), rel=1e-2)
    less = replace(seen, study=replace(seen.study, budget=1))
    assert told(less)[0] == found  # three are there


def test_the_worst_point_has_the_worst_choice_of_every_setting(write):
    choices = (("clipping_norm = [0.5, 2.0]", "clipping_norm = { choices = [0.5, 2.0, 1.0] }"),
               ("noise_multiplier = { low = 2.0, high = 8.0, log = true }", "sigma = { choices = [0.9, 0.4, 2.0] }"))
    seen, _ = seen_of(write(ADAPTIVE, *choices, ("budget = 3", "budget = 1"), ("repeats = 2", "repeats = 1")))
    found, _ = told(seen)
    worst = 0.4 * (20 * 0.2) ** 0.5 / 2.0  # the noise of the smallest cohort over the largest norm
    assert found == pytest.approx(price(seen.study, worst, 0.5, 4), rel=1e-2)


def test_every_optimizer_but_those_that_cannot_look_counts_as_adaptive():
    @dataclass(frozen=True)
    class Own:
        batch: int = 1

        def propose(self, problem, history, n, seed):
            return np.full((n, len(problem.space)), 0.5)

    assert chosen_by(Random()) == chosen_by(Grid()) == "listed"
    assert chosen_by(Random(sequence="uniform")) == "drawn"
    assert chosen_by(Own()) == chosen_by(Nsga2()) == "adaptive"
    assert {name for name, cls in OPTIMIZERS.items() if chosen_by(cls()) != "adaptive"} == {"random", "grid"}


@pytest.mark.parametrize(("change", "said"), [(UNIFORM, True), (('name = "random"', 'name = "random"  # sobol'), False), (ADAPTIVE, False)])
def test_a_random_number_of_trials_is_spoken_of_for_independent_draws_alone(write, change, said):
    seen, _ = seen_of(write(change, RELEASE, ("repeats = 2", "repeats = 1")))
    _, text = told(seen)
    assert ("Had the number of trials been random" in text) == said
    assert ("points are independent draws here" in text) == said


def test_the_statement_says_what_it_covers_and_what_it_rests_on(finished):
    _, text = told(finished[0])
    assert "It covers the data that clients train on. Scores are computed on the test data as they are, which it does not cover." in text
    assert "keep the database as private as the data" in text
    assert "the chosen model included" in text


def test_a_search_without_a_recommended_point_has_its_price_too(write):
    seen, trials = seen_of(write(("reference = 10", "reference = 10\nlimit = 1e-9")))
    assert seen.recommended is None
    assert statements(seen)[0].startswith("The search trained on private data. All of it together: ε = ")
    assert "All of it together: ε = " in evidence(seen, trials)


@pytest.mark.parametrize("private", ["true", "false"])
def test_a_run_says_that_its_noise_is_simulated(write, fedpareto, private):
    out = fedpareto("run", write(("private_data = true", f"private_data = {private}"))).out
    assert "The noise is simulated: it comes from a seed" in out
    assert ("and a secret in the database" in out) == (private == "true")
    assert "A deployment must draw its noise from the system's secure randomness" in out


def test_without_noise_nothing_is_said_of_it(write, fedpareto):
    path = write(('name = "randomization"\nnoise_multiplier = { low = 2.0, high = 8.0, log = true }\nclipping_norm = [0.5, 2.0]', 'name = "none"'),
                 ('[objectives.epsilon]\nreference = 10\n', ""))
    out = fedpareto("run", path).out
    assert "The noise is simulated" not in out
    assert "what it shows is protected by nothing" in out
