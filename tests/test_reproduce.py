"""The papers' figures and tables by name: their studies load and run, and the page says what was committed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedpareto.errors import ChangedStudy, FedparetoError, SettingError
from fedpareto.loop import verify
from fedpareto.reproduce import (
    EXPERIMENTS,
    NAMES,
    committed,
    gu24_why,
    named,
    papers_page,
    redraw,
    report,
    reproduce,
    results,
    study_of,
    train,
    work_of,
)
from fedpareto.reproduce import studies_gu24 as gu
from fedpareto.reproduce import studies_kang23 as kang
from fedpareto.reproduce.experiment import Experiment, Found, Line, Panel, Part, Rows, verdict_of
from fedpareto.reproduce.figure import panels_of, places_of
from fedpareto.reproduce.gu24_cases import BOXES
from fedpareto.reproduce.judge import above, missing, number, ranks_alike
from fedpareto.reproduce.page import reason
from fedpareto.reproduce.races import compared
from fedpareto.reproduce.run import unjudged
from fedpareto.reproduce.workers import Work, whole_bar
from fedpareto.store import Store
from fedpareto.study import load_study
from fedpareto.trials import Trial

ROOT = Path(__file__).parents[1]
PARTS = {p.name: p for e in EXPERIMENTS.values() for p in e.parts}
NUMBER = r"\d+(?:\.\d+)?"


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_every_study_loads_at_every_scale(scale, tmp_path):
    for name, part in PARTS.items():
        study = study_of(part, scale, tmp_path)
        assert study.name == name
        assert study.budget >= study.optimizer.batch


def test_a_name_states_the_same_studies_wherever_it_is_used():
    for experiment in EXPERIMENTS.values():
        assert all(PARTS[p.name] == p for p in experiment.parts)


def test_every_name_has_studies_at_every_scale():
    assert tuple(EXPERIMENTS) == NAMES
    assert all(
        e.at(scale) and e.expected(scale) > 0
        for e in EXPERIMENTS.values()
        for scale in ("quick", "paper")
    )


def test_the_list_shows_every_name_with_its_times(fedpareto):
    done = fedpareto("reproduce", "--list")
    assert done.status == 0
    lines = done.out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*NAMES]


def test_a_name_that_does_not_exist_is_refused():
    with pytest.raises(
        SettingError, match="must name a figure or table of --list, found 'gu24-fig9'"
    ):
        named(["gu24-fig9"])


def test_missing_study_files_are_said(tmp_path):
    with pytest.raises(
        SettingError, match=r"needs the study files of the source, found no .*nothing\.toml"
    ):
        study_of(Part("x", "nothing.toml"), "paper", tmp_path)


@pytest.mark.parametrize(("end", "said"), [
    ("png", "must be a new file or a picture to write again"), ("json", "must be a new file or a result to write again"), ("toml", "must be the study file that is written there")])
def test_no_file_of_the_users_own_is_replaced(tmp_path, end, said):
    """A past finding: a study file that was changed, or another's table of that name, was written over."""
    experiment = EXPERIMENTS["xiao25-table1"]
    work_of([experiment], "paper", tmp_path)
    name = next(iter(experiment.at("paper"))).name if end == "toml" else experiment.name
    for mine in (b"mine", b"\xff", b'name = "mine"\n'):
        (tmp_path / f"{name}.{end}").write_bytes(mine)
        with pytest.raises(SettingError, match=f"--output: .*{said}|--output: {said}"):
            work_of([experiment], "paper", tmp_path)
        assert (tmp_path / f"{name}.{end}").read_bytes() == mine
        (tmp_path / f"{name}.{end}").unlink()
    report(experiment, "paper", tmp_path)
    work_of([experiment], "paper", tmp_path)


def test_a_number_agrees_within_the_interval_and_differs_outside():
    assert number("k", 22, "Fig. 2", 20, (18, 23)).verdict == "agrees"
    assert number("k", 22, "Fig. 2", 34, (31, 37)).verdict == "differs"
    assert number("k", 22, "Fig. 2", 34, (10, 90)).verdict == "open"


def test_a_ranking_is_open_within_two_standard_errors():
    assert above("a above b", "6.2", [0.9, 0.91, 0.9], [0.5, 0.52, 0.5]).verdict == "agrees"
    assert above("a above b", "6.2", [0.5, 0.52, 0.5], [0.9, 0.91, 0.9]).verdict == "differs"
    assert above("a above b", "6.2", [0.5, 0.6, 0.4], [0.5, 0.5, 0.5]).verdict == "open"
    assert above("a above b", "6.2", [0.9, 0.91], [0.5, 0.5]).verdict == "open"


def test_a_scale_ranks_as_epsilon_does_where_their_ranks_agree():
    scale = [float(i) for i in range(12)]
    assert ranks_alike("x", "Eq. 2", scale, [10 * s for s in scale]).verdict == "agrees"
    assert ranks_alike("x", "Eq. 2", scale, [-s for s in scale]).verdict == "differs"
    assert ranks_alike("x", "Eq. 2", [1.0] * 12, scale).verdict == "open"
    assert ranks_alike("x", "Eq. 2", scale[:5], scale[:5]).verdict == "open"
    assert ranks_alike("x", "Eq. 2", [*scale, 0], [*scale, np.inf]).verdict == "agrees"


def test_a_small_experiment_leaves_a_printed_number_open():
    assert unjudged(number("k", 22, "Fig. 2", 34, (31, 37))).verdict == "open"
    ranked = above("a above b", "6.2", [0.9, 0.91, 0.9], [0.5, 0.52, 0.5])
    assert unjudged(ranked) == ranked


def test_one_difference_makes_the_whole_differ():
    agrees = number("k", 1, "", 1, (0.8, 1.2))
    assert verdict_of([agrees]) == "agrees"
    assert verdict_of([agrees, missing("x", "1", "", "why")]) == "open"
    assert verdict_of([agrees, number("k", 5, "", 1, (0.8, 1.2))]) == "differs"
    assert verdict_of([agrees, replace(agrees, verdict="below")]) == "agrees"
    assert verdict_of(Found((), ()).comparisons) == "open"


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_everything_is_open(name, tmp_path):
    found = EXPERIMENTS[name].report({})
    assert {c.verdict for c in found.comparisons} == {"open"}


def law_rows(part: Part, k: float, folder: Path, seeds: int = 2) -> Rows:
    """Return rows of trainings whose test loss is that of Gu 2024, Eq. 8."""
    study = study_of(part, "paper", folder)
    problem = study.problem
    last = int(problem.training.rounds.high)
    share = problem.training.sample_ratio * problem.data.clients
    T = np.arange(1, last + 1)
    trials, losses = [], {}
    for i, sigma in enumerate(
        np.linspace(problem.mechanism.sigma.low, problem.mechanism.sigma.high, 15).tolist()
    ):
        loss = 1 / T + k * sigma**2 / share
        measures = {
            "gu24_eq2": last / sigma,
            "epsilon_secagg": 2 * last / sigma,
            "epsilon_release": last / sigma,
            "test_loss": float(loss[-1]),
        }
        trials.append(Trial(i, 0, (0.0, 0.0), {"sigma": sigma, "rounds": last}, "done", measures))
        losses[i] = [loss.tolist()] * seeds
    return Rows(study, trials, losses, 1.0)


def test_trainings_that_follow_the_law_are_found_to_follow_it(tmp_path):
    rows = {
        name: law_rows(part, 22.0 if "-lr-" in name else 110.0, tmp_path)
        for name, part in PARTS.items()
        if name.startswith("gu24-l")
    }
    for name in ("gu24-fig2a", "gu24-fig2b", "gu24-fig4", "gu24-fig5"):
        found = EXPERIMENTS[name].report(rows)
        assert verdict_of(found.comparisons) == "agrees", (name, found.comparisons)
    cases = EXPERIMENTS["gu24-fig3"].report(rows)
    on_it = [c for c in cases.comparisons if "Theorem 3" in c.what]
    assert len(on_it) == len(BOXES)
    assert {c.verdict for c in on_it} == {"agrees"}, on_it
    front = [
        c for c in EXPERIMENTS["gu24-fig6"].report(rows).comparisons if "predicted front" in c.what
    ]
    assert {c.verdict for c in front} == {"agrees"}, front


def test_trainings_that_follow_another_law_differ(tmp_path):
    rows = {p.name: law_rows(p, 60.0, tmp_path) for p in gu.grid("lr")}
    assert EXPERIMENTS["gu24-fig2a"].report(rows).comparisons[0].verdict == "differs"
    other = {
        p.name: law_rows(p, k, tmp_path)
        for p, k in zip(gu.clients("lr"), (10.0, 20.0, 60.0), strict=True)
    }
    assert EXPERIMENTS["gu24-fig5"].report(other).comparisons[0].verdict == "differs"


def test_a_design_costs_what_its_trainings_count(tmp_path):
    rows = {p.name: law_rows(p, 25.0, tmp_path) for p in (gu.public("lr"), gu.real("lr"))}
    said = EXPERIMENTS["gu24-table2"].report(rows).comparisons[0].ours
    # fifteen noises, two seeds, 200 rounds, ten clients, 20 steps; then one noise for twenty clients
    expected = 15 * 2 * 200 * 10 * 20 + 2 * 200 * 20 * 20
    assert said.startswith(f"{expected:,} against ")


def test_the_same_points_give_many_a_k_by_how_they_are_read(tmp_path):
    rows = {p.name: law_rows(p, 25.0, tmp_path) for p in gu24_why.PARTS.values()}
    read = gu24_why.readings([rows[gu24_why.PARTS[gu24_why.BASE].name]])
    assert read["our fit"] == pytest.approx(25.0, rel=0.05)
    assert read["along the upper edge"] < read["our fit"] < read["geometric mean"]
    rows |= {p.name: law_rows(p, 110.0, tmp_path) for p in gu24_why.LENET}
    found = {c.what: c for c in EXPERIMENTS["gu24-why"].report(rows).comparisons}
    assert {c.verdict for c in found.values()} == {"–"}
    moved = found["k of LR by learning rate and clipping norm"].ours
    assert [float(k) for k in re.findall(r"[a-z\d] ([\d.]+) \(", moved)] == pytest.approx([25.0] * len(gu24_why.PARTS), rel=0.05)
    assert "0% of all rounds; converged after" in found["LeNet stays on the plateau on which training begins"].ours
    assert "The paper's 25 lies within them" in found["k of LR, read in other ways"].why
    cost = 15 * 2 * 200 * 10 * 20 + 30 * 200 * 20 * 20  # rows of the law have fifteen noises
    assert found["LR: the design with a small pre-experiment"].ours.startswith(f"{cost:,} client-steps, k 2")
    assert found["the case of Fig. 3(c) by the paper's own k"].ours == "kσ²T = 468.8 against qK = 10: case II"


def test_eq_2_ranks_sums_as_their_true_epsilon_does_once_q_divides(tmp_path):
    study = study_of(gu24_why.PARTS[gu24_why.BASE], "paper", tmp_path)
    said = gu24_why._ranks(study.problem).ours
    found = [float(n) for n in re.findall(r"\d\.\d+", said)]
    assert found[0] == 1.0
    assert found[2] < 0.9 < found[1]
    assert max(found[2:]) < 0.9


def tiny(name, optimizer, seed=1, budget=4):
    changes = {
        "name": name,
        "seed": seed,
        "data.name": "digits",
        "model": {"name": "lr"},
        "training.local_epochs": 1,
        "training.rounds": 1,
        "training.evaluate_every": 1,
        "budget": budget,
        "optimizer": optimizer,
    }
    return Part(name, "kang23-rd.toml", changes, {}, {"quick": 1.0})


def a_race(rows):
    return Found((compared(rows, "one above two", "Fig. 3", "one", "two"),), ())


def tiny_race(budget=4):
    tables = {
        "one": {"name": "nsga2", "population": 2},
        "two": {"name": "nsga2", "population": 2, "penalty": False},
    }
    parts = tuple(
        tiny(f"{a}-seed{s}", table, s, budget) for a, table in tables.items() for s in (1, 2)
    )
    return Experiment("tiny", "a race", "nothing", parts, a_race)


def rows_in(folder):
    found = {}
    for path in sorted(folder.glob("*.db")):
        with Store.read(path) as store:
            found[path.stem] = [(t.settings, t.measures) for t in store.trials()]
    return found


def test_a_run_verifies_and_says_the_same_again(tmp_path):
    experiment = tiny_race()
    first = reproduce(experiment, "quick", tmp_path)
    assert (tmp_path / "tiny.png").stat().st_size > 1000
    assert json.loads((tmp_path / "tiny.json").read_text()) == json.loads(json.dumps(first))
    assert first["unfinished"] == ""
    for part in experiment.parts:
        with Store.read(tmp_path / f"{part.name}.db") as store:
            assert len(store) == 4
            assert list(verify(study_of(part, "quick", tmp_path), store)) == []
    again = reproduce(experiment, "quick", tmp_path)
    assert again["comparisons"] == first["comparisons"]
    assert "of 1 statements agree" in first["paragraph"]
    assert "after 4 evaluations" in first["comparisons"][0]["ours"]


def test_what_is_not_run_to_the_end_is_said(tmp_path):
    small, large = tiny_race(2), tiny_race(6)
    train(work_of([small], "quick", tmp_path)[:3])
    found = reproduce(large, "quick", tmp_path, seconds=0)
    assert found["unfinished"] == "nothing of two; 2 of 6 trials of one"
    assert "after 2 evaluations" in found["comparisons"][0]["ours"]
    said = {**found, "comparisons": [{**c, "scale": "quick"} for c in found["comparisons"]]}
    assert "Not run to the end: nothing of two" in papers_page([{**said, "name": "gu24-fig2a"}])


KILLED = """
import sys
from pathlib import Path
from fedpareto.reproduce import train
from fedpareto.reproduce.run import unjudged
from fedpareto.reproduce.workers import Work, whole_bar
if __name__ == "__main__":
    train([Work(Path(p), 1.0) for p in sys.argv[1:]], jobs=2)
"""


@pytest.mark.slow
def test_a_run_of_many_processes_that_is_killed_goes_on_to_the_same_rows(tmp_path):
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert train(work_of([tiny_race(8)], "quick", alone))
    work = work_of([tiny_race(8)], "quick", killed)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    child = subprocess.Popen(
        [sys.executable, str(script), *(str(w.path) for w in work)], start_new_session=True
    )
    until = time.monotonic() + 120
    while not any(rows_in(killed).values()) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert train(work, jobs=2)
    assert rows_in(killed) == rows_in(alone)
    for part in tiny_race(8).parts:
        with Store.read(killed / f"{part.name}.db") as store:
            assert list(verify(study_of(part, "quick", killed), store)) == []


ALONE = KILLED.replace(", jobs=2", "")


def test_a_run_that_is_killed_goes_on_to_the_same_rows(tmp_path):
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert train(work_of([tiny_race(8)], "quick", alone))
    work = work_of([tiny_race(8)], "quick", killed)
    script = tmp_path / "killed.py"
    script.write_text(ALONE)
    child = subprocess.Popen([sys.executable, str(script), *(str(w.path) for w in work)])
    until = time.monotonic() + 120
    while not any(rows_in(killed).values()) and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = sum(map(len, rows_in(killed).values()))
    assert 0 < before < 32, before
    assert train(work)
    assert rows_in(killed) == rows_in(alone)
    for part in tiny_race(8).parts:
        with Store.read(killed / f"{part.name}.db") as store:
            assert list(verify(study_of(part, "quick", killed), store)) == []


def test_nothing_of_a_finished_study_is_trained_or_written_again(tmp_path):
    work = work_of([tiny_race(2)], "quick", tmp_path)
    assert train(work)
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.db")}
    for path in tmp_path.glob("*.db"):
        path.chmod(0o444)
    assert train(work)
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.db")} == before
    changed = tmp_path / "one-seed1.toml"
    changed.write_text(changed.read_text().replace("seed = 1", "seed = 7"))
    with pytest.raises(ChangedStudy, match="must belong to this study"):
        train([Work(changed, 1.0)])


def with_and_without_penalty(folder, budget=12):
    """Return two studies that differ in their optimizer alone, the second after the first."""
    first, second = (
        kang.search("mnist", "rd", algorithm, 1) for algorithm in ("cmofl-nsga2", "mofl-nsga2")
    )
    small = {"data.name": "digits", "model.hidden": [8], "training.local_epochs": 1,
             "mechanism.sigma": {"low": 1e-3, "high": 1.0, "log": True}, "budget": budget}
    parts = [replace(p, quick={**p.quick, **small}) for p in (first, second)]
    experiment = Experiment("tiny", "", "nothing", tuple(parts), lambda rows: Found((), ()))
    return work_of([experiment], "quick", folder)


def test_rows_that_another_optimizer_had_trained_are_those_it_would_train(tmp_path):
    alone, after = tmp_path / "alone", tmp_path / "after"
    first, second = with_and_without_penalty(alone)
    assert second.after == first.path
    assert train([replace(second, after=None), first])
    first, second = with_and_without_penalty(after)
    assert train([second, first]), "whoever lends is trained first"
    assert rows_in(after) == rows_in(alone)
    trained = {}
    for work in (first, second):
        with Store.read(work.path.with_suffix(".db")) as store:
            trained[work.path] = sum(w.trainings for w in store.works().values())
            assert list(verify(load_study(work.path), store)) == []
            (alone_baseline,) = store.baselines("unprotected")
            with Store.read(alone / work.path.with_suffix(".db").name) as other:
                assert other.baselines("unprotected") == [alone_baseline]
    settings = [{json.dumps(s) for s, _ in rows} for rows in rows_in(after).values()]
    assert trained[first.path] == 12
    assert trained[second.path] == 12 - len(settings[0] & settings[1]) < 12


def test_rows_of_another_problem_are_not_taken_over(tmp_path):
    first, second = with_and_without_penalty(tmp_path)
    second.path.write_text(second.path.read_text().replace("rounds = 4", "rounds = 3"))
    with pytest.raises(SettingError, match=r"must differ from .* in its optimizer alone, found another problem"):
        train([first, second])


def test_the_time_given_ends_a_run_between_blocks(tmp_path):
    work = work_of([tiny_race(6)], "quick", tmp_path)
    assert not train(work, seconds=0)
    assert not train(work, seconds=1e-6)
    begun = rows_in(tmp_path)
    assert sum(map(len, begun.values())) < 24
    assert train(work)
    assert {len(rows) for rows in rows_in(tmp_path).values()} == {6}


@pytest.mark.slow
def test_a_study_that_cannot_be_trained_is_said_after_the_others(tmp_path):
    work = work_of([tiny_race(2)], "quick", tmp_path)
    bad = tmp_path / "bad.toml"
    bad.write_text("budget = 0\n")
    with pytest.raises(FedparetoError, match="budget"):
        train([*work, Work(bad, 9.0)], jobs=2)
    assert {len(rows) for rows in rows_in(tmp_path).values()} == {2}


def test_the_command_reports_what_the_rows_say_without_training(fedpareto, tmp_path):
    done = fedpareto("reproduce", "kang23-fig6", "--output", tmp_path, "--seconds", 0)
    assert done.status == 0
    assert "1 names at quick scale: 18 studies" in done.err
    assert "kang23-fig6  open" in done.out
    assert json.loads((tmp_path / "quick" / "kang23-fig6.json").read_text())["verdict"] == "open"


def test_the_page_is_what_the_results_say():
    assert (ROOT / "docs" / "papers.md").read_text() == papers_page(results()), (
        "run: python docs/generate.py"
    )


def test_every_statement_that_differs_has_an_experiment_behind_it():
    by_name = {r["name"]: r for r in results()}
    for name, r in by_name.items():
        for c in r["comparisons"]:
            if c["verdict"] == "differs" and c["scale"] == "paper":
                assert reason(by_name, name, c["what"]), (name, c["what"])
    page = papers_page(results())
    assert "No experiment yet." not in page
    without = [r for r in results() if r["name"] != "gu24-why"]
    assert "No experiment yet." in papers_page(without)


def test_a_figure_is_drawn_again_from_the_numbers_of_its_result(tmp_path):
    folder = ROOT / "benchmarks" / "results" / "papers"
    for name in ("gu24-table2", "kang23-fig6"):  # bars; lines of which one has a single point
        (tmp_path / f"{name}.json").write_text((folder / f"{name}.json").read_text())
    drawn = redraw(tmp_path)
    assert [p.name for p in drawn] == ["gu24-table2.png", "kang23-fig6.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in drawn)


def test_an_algorithm_has_one_colour_in_all_panels_of_a_figure():
    """A past finding: where one was not run yet, those after it took its colour."""
    for result in results():
        panels = panels_of(result)
        places = places_of(panels)
        for panel in panels:
            used = [(line.of, places[line.of, line.label]) for line in panel.lines]
            assert len(used) == len(set(used)), (result["name"], panel.title)
    both, one = (Panel("", "", "", tuple(Line(x, [], []) for x in lines)) for lines in ("ab", "b"))
    assert places_of([one, both])["ours", "b"] == 1


def test_no_number_stands_on_the_page_that_the_results_do_not_hold():
    held = {
        n
        for path in (ROOT / "benchmarks" / "results" / "papers").glob("*.json")
        for n in re.findall(NUMBER, path.read_text())
    }
    held |= {n for name in NAMES for n in re.findall(NUMBER, name)}
    assert set(re.findall(NUMBER, (ROOT / "docs" / "papers.md").read_text())) <= held


def test_what_a_scale_has_not_run_is_taken_from_the_quick_one(tmp_path):
    ran = {"what": "a", "ours": "1", "why": "a: one.", "verdict": "agrees"}
    unrun = {"what": "b", "ours": "–", "why": "b: not run.", "verdict": "open"}
    quick = {"what": "b", "ours": "2", "why": "b: two.", "verdict": "differs"}
    for name, scale, comparisons in (("x", "paper", [ran, unrun]), ("x-quick", "quick", [{**ran, "ours": "9"}, quick])):
        text = json.dumps({"scale": scale, "comparisons": comparisons, "figure": f"{name}.png", "smaller": "less"})
        (tmp_path / f"{name}.json").write_text(text)
    found = committed("x", tmp_path)
    assert [(c["ours"], c["scale"]) for c in found["comparisons"]] == [("1", "paper"), ("2", "quick")]


def test_a_committed_result_is_of_the_studies_as_they_are():
    for found in results():
        parts = {p.name: p for p in EXPERIMENTS[found["name"]].at(found["scale"])}
        assert {s["name"] for s in found["studies"]} == set(parts)


def test_a_report_of_rows_alone_is_that_of_the_run(tmp_path):
    experiment = tiny_race(2)
    ran = reproduce(experiment, "quick", tmp_path)
    assert report(experiment, "quick", tmp_path)["comparisons"] == ran["comparisons"]


@pytest.mark.parametrize("cell", ["mnist-cnn", "mnist-vgg", "cifar10-cnn", "cifar10-vgg"])
def test_studies_of_xiao_say_how_the_paper_begins_and_what_they_say_runs(cell, tmp_path):
    text = (Path(__file__).parent.parent / "examples" / "papers" / f"xiao25-{cell}.toml").read_text()
    said = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    assert len(said) == 2
    for line in said:
        name = line.partition(" = ")[0]
        text = re.sub(rf"^{name} = .*$", line, text, flags=re.M)
    path = tmp_path / "study.toml"
    path.write_text(text)
    space = load_study(path).problem.space
    means = {v.name: (v.mean, v.spread) for v in space.variables if getattr(v, "mean", None) is not None}
    assert means == {"noise_multiplier": (6.0, 2.5), "prune_rate": (0.3, 0.1)}


def test_many_studies_run_into_a_log_say_now_and_then_how_far_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr("fedpareto.report.progress.FIRST", 0.0)
    monkeypatch.setattr("fedpareto.report.progress.BETWEEN", 0.0)
    log, work = io.StringIO(), [Work(tmp_path / "a.toml", 30.0), Work(tmp_path / "b.toml", 10.0)]
    with whole_bar(work, log) as tell:
        tell(work[0].path, 0.5)
        tell(work[1].path, 1.0)
    first, second = log.getvalue().splitlines()
    assert first == "reproduce: 38%; 0 of 2 studies, now a"
    assert second.startswith("reproduce: 62%; about ")
    assert second.endswith(" left; 1 of 2 studies, now b")
