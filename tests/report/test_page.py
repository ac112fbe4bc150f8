"""The page and the figures."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import sys
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedpareto import load_study, run, view, write_page
from fedpareto.errors import MissingPackage
from fedpareto.federation.data import Data, load
from fedpareto.problem import listening
from fedpareto.report import figures
from fedpareto.report.figures import PLOTS, write_figures
from fedpareto.report.page import page, page_data
from fedpareto.report.points import split_table
from fedpareto.report.progress import progress, screen_of
from fedpareto.study.write import to_toml

from .pages import made_up
from .test_points import study, trials


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


def test_the_page_holds_every_trial_and_loads_nothing():
    seen = view(study(limit=0.8), trials((0.5, 0.5), (0.2, 0.7), (0.1, 0.9), failed=["training diverged in round 1"]))
    html = page(seen)
    data = data_of(html)
    assert data["points"]["trial"] == [0, 1, 2]
    assert [data["points"]["trial"][i] for i in data["points"]["front"]] == [p.trial for p in seen.front]
    assert seen.points[data["points"]["recommended"]] is seen.recommended
    assert data["failed"][0]["error"] == "training diverged in round 1"
    assert data["recommended"] == seen.recommended.trial
    assert not re.search(r"""(src|href)\s*=\s*["']?https?:|@import|url\(""", html)


def test_a_name_with_markup_is_shown_and_not_run():
    nasty = '</script><script>alert(1)</script><img src=x onerror="alert(2)">{{data}}'
    html = page(view(replace(study(), name=nasty), trials((0.5, 0.5))))
    assert "<script>alert" not in html
    assert "<img" not in html
    assert html.count("</script>") == 2
    assert data_of(html)["study"] == nasty


@pytest.mark.parametrize("rows", [[], [(0.5, 0.5)], [(0.5, 0.5), (0.2, 0.7)]])
def test_a_page_and_figures_can_be_made_of_any_number_of_trials(rows, tmp_path):
    seen = view(study(), trials(*rows))
    write_page(seen, tmp_path / "p.html")
    assert [p.name for p in write_figures(seen, tmp_path / "p")] == ["p-front.png", "p-hypervolume.png"]


def test_the_page_keeps_objectives_and_settings_in_full_and_other_measures_in_a_few_digits():
    seen = made_up(50, 3, full=True)
    points = page_data(seen)["points"]
    assert points["objectives"]["loss"] == [p.objectives["loss"] for p in seen.points]
    assert points["settings"]["rate"] == [p.settings["rate"] for p in seen.points]
    assert points["measures"]["upload_bytes"] == pytest.approx([p.measures["upload_bytes"] for p in seen.points], rel=1e-5)
    assert "f1" not in points["measures"]
    for ours, p in zip(points["measures"]["epsilon_server"], seen.points, strict=True):
        assert p.measures["epsilon_server"] <= ours <= p.measures["epsilon_server"] * (1 + 1e-5)


def test_an_unbounded_objective_or_measure_is_null_on_the_page():
    seen = view(study(), trials((0.5, 0.5), (0.2, math.inf)))
    points = data_of(page(seen))["points"]
    assert (points["objectives"]["f2"], points["feasible"]) == ([0.5, None], [1, 0])


def test_what_equals_in_every_trial_is_told_once_and_a_later_row_of_a_trial_is_early():
    seen = view(study(), trials((0.5, 0.5), (0.2, 0.7)))
    twice = replace(seen, points=(*seen.points, replace(seen.points[0], settings={"x1": 0.25, "x2": 0.5})))
    points = data_of(page(twice))["points"]
    assert (points["settings"]["x2"], points["early"], points["trial"]) == (0.5, [2], [0, 1, 0])


def test_only_the_pages_own_script_may_run_and_only_a_live_page_may_ask():
    seen = view(study(), trials((0.5, 0.5)))
    still, live = page(seen), page(seen, live='data.json"><b>')
    script = re.search(r"<script>(.*)</script>", still, re.S)[1]
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in still
    assert ("connect-src 'none'" in still, "connect-src 'self'" in live) == (True, True)
    assert '<body data-live="data.json&quot;&gt;&lt;b&gt;">' in live
    assert "<body>" in still


def test_every_plot_can_be_drawn_as_svg_and_png(tiny_study, tmp_path):
    with run(load_study(tiny_study)) as store:
        seen = view(load_study(tiny_study), store.trials())
    written = write_figures(seen, tmp_path / "p", kinds=("svg", "png"), plots=PLOTS)
    assert [p.name for p in written] == [f"p-{name}.{kind}" for name in PLOTS for kind in ("svg", "png")]
    assert "<text" in (tmp_path / "p-front.svg").read_text()


def test_of_very_many_trials_some_are_drawn_beside_the_front_and_how_many_is_said(monkeypatch):
    monkeypatch.setattr(figures, "MOST_LINES", 8)
    seen = made_up(50, 3, full=True)
    axes = Figure().add_subplot()
    figures.draw_settings(axes, seen)
    others, front, chosen = (len(c.get_segments()) for c in axes.collections)
    assert front + chosen == len(seen.front)
    every = -(-(len(seen.points) - len(seen.front)) // 8)
    assert others == -(-(len(seen.points) - len(seen.front)) // every) <= 8
    assert axes.get_title(loc="left") == f"settings and objectives: the front, the recommended trial, 1 in {every} others"


@pytest.mark.parametrize("m", [1, 3])
def test_figures_can_be_made_of_one_and_of_three_objectives(m, tmp_path):
    rows = [tuple((0.1 * i, 1 - 0.1 * i, 0.05 * i)[:m]) for i in range(8)]
    assert len(write_figures(view(study(m=m), trials(*rows)), tmp_path / "p")) == 2


def test_without_matplotlib_the_error_names_the_install_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackage, match=r"needs the package matplotlib, which is not installed. Install it: "
                                             r"pip install 'fedpareto\[figures\]'"):
        write_figures(view(study(), trials((0.5, 0.5))), tmp_path / "p")


def test_a_study_written_as_toml_reads_back_as_the_same_study(tiny_study):
    loaded = load_study(tiny_study)
    text = to_toml(loaded.description).replace("local_epochs = 0\n", "")
    again = tiny_study.with_name("again.toml")
    again.write_text(text)
    assert load_study(again).identity == loaded.identity
    assert tomllib.loads(to_toml({"a": {"b": "ü\"\n", "c": [1, 2.5, True]}})) == {"a": {"b": "ü\"\n", "c": [1, 2.5, True]}}


def test_the_page_says_how_the_study_was_asked(tiny_study):
    with run(load_study(tiny_study)) as store:
        data = data_of(page(view(load_study(tiny_study), store.trials())))
    assert 'measure = "kang23_eq13"' in data["file"]
    assert data["proxies"] == ["leakage is a proxy (Kang 2023, Eq. 13), not a privacy guarantee."]
    assert "seed 1" in data["made"]


def test_the_page_shows_who_holds_what(tiny_study):
    tiny_study.write_text(tiny_study.read_text().replace("clients = 4", 'clients = 60\nsplit = "dirichlet"'))
    seen = view(load_study(tiny_study), [])
    data, table = data_of(page(seen)), split_table(seen)
    assert (len(data["split"]), data["clients"], table.sum()) == (50, 60, 1438)
    assert (table.sum(axis=0) == np.bincount(load(Data("digits")).y_train)).all()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_narrow_terminal_shows_how_many_trials_are_done(tiny_study, monkeypatch):
    """A past finding: a longer text of the best so far left no place for the count."""
    monkeypatch.setenv("COLUMNS", "70")
    study, screen = load_study(tiny_study), Terminal()
    with screen_of(study, screen) as bar:
        bar.show(2, "hypervolume 0.1234, share 0.1234 · none within the limits yet")
    assert re.search("2/2.* trials .*hyper.*…", screen.getvalue())


def test_the_progress_bar_moves_inside_a_block_and_shows_the_best_so_far(tiny_study, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    study, screen, shares = load_study(tiny_study), Terminal(), []
    with progress(study, screen) as watch, run(study, watch=watch) as store:
        assert len(store) == 2
    assert "2/2" in screen.getvalue()
    assert re.search(r"hypervolume \d\.\d{4}, share \d\.\d{4} ", screen.getvalue().replace("\n", " "))
    with listening(shares.append):
        study.problem.measure({"learning_rate": [0.1], "sigma": [0.1], "clipping_norm": [1.0]}, [0])
    assert shares == [1.0]
