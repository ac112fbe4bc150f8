"""What a notebook and a Python prompt show: short words, a picture and a table, pandas, axes."""

import io
import re
import shutil
import sys
from pathlib import Path

import pytest

import fedpareto
from fedpareto import Store, load_study, run
from fedpareto.errors import MissingPackage, SettingError
from fedpareto.federation import MODELS, SERVERS
from fedpareto.mechanisms import MECHANISMS
from fedpareto.optimizers import OPTIMIZERS
from fedpareto.privacy import plan
from fedpareto.problem import listening, tell
from fedpareto.report.progress import (
    BETWEEN,
    FIRST,
    Lines,
    NotebookBar,
    in_words,
    progress,
    saying_how_long,
    trials_of,
)
from report.pages import made_up, proxied


@pytest.fixture
def tiny(tiny_study):
    return load_study(tiny_study)


EXAMPLES = Path(__file__).parents[2] / "examples"
FAMILIES = (OPTIMIZERS, MECHANISMS, MODELS, SERVERS)


@pytest.mark.parametrize("kind", [kind for family in FAMILIES for kind in family.values()])
def test_every_optimizer_mechanism_model_and_server_is_a_public_name(kind):
    assert getattr(fedpareto, kind.__name__) is kind


def test_reprs_are_short_and_say_what_matters():
    seen = made_up(300, full=True)
    assert len(repr(seen)) < 200
    assert "300 trials" in repr(seen)
    assert f"recommended trial {seen.recommended.trial}" in repr(seen)
    assert len(repr(seen.recommended)) < 300
    assert "loss" in repr(seen.recommended)
    assert repr(seen.study).startswith("Study(made up: loss, leakage, shared over x1")
    assert len(repr(seen.study)) < 200


def test_a_store_says_how_far_it_is_and_that_it_is_closed(tiny, tmp_path):
    with run(tiny, db=tmp_path / "s.db") as store:
        assert f"{tiny.budget} of {tiny.budget} trials finished" in repr(store)
        assert "trials finished" in store._repr_html_()
    assert repr(store).endswith("closed)")
    with Store.read(tmp_path / "s.db") as again:
        assert "trials finished" in repr(again)


def test_html_of_a_view_has_the_picture_the_table_and_what_is_a_proxy():
    seen = proxied(made_up(40))
    shown = seen._repr_html_()
    assert "<svg" in shown
    assert shown.count('<tr class="chosen">') == 1
    assert "leakage is a proxy (Kang 2023, Eq. 13), not a privacy guarantee." in shown
    assert ":root" not in shown


def test_html_shows_hostile_names_as_text():
    seen = made_up(10, name="<script>alert(1)</script>", names=("<b>", "a&b", "'x'"))
    for shown in (seen, seen.study, seen.points[0]):
        assert "<script>" not in shown._repr_html_()
        assert "<b>" not in shown._repr_html_()


def test_html_without_any_trial_says_so():
    assert "0 trials" in made_up(0)._repr_html_()


def test_a_pandas_table_has_every_point_and_the_same_numbers():
    seen = made_up(50)
    frame = seen.to_pandas()
    assert list(frame["trial"]) == [p.trial for p in seen.points]
    assert list(frame["loss"]) == [p.objectives["loss"] for p in seen.points]
    assert frame["on_front"].sum() == len(seen.front)
    assert list(frame.loc[frame["recommended"], "trial"]) == [seen.recommended.trial]


def test_without_pandas_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackage, match=r"pip install 'fedpareto\[notebook\]'"):
        made_up(3).to_pandas()


def test_plot_draws_on_axes_and_refuses_what_is_not_there():
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    seen = made_up(30)
    axes = seen.plot()
    assert axes.get_xlabel()
    assert seen.plot("hypervolume", axes=axes) is axes
    with pytest.raises(SettingError, match=r"plot: must be one of front, .* found 'frnt'"):
        seen.plot("frnt")
    with pytest.raises(SettingError, match="plot: the study must have what split shows"):
        seen.plot("split")
    pyplot.close("all")


def test_plot_without_matplotlib_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"fedpareto\[figures\]"):
        made_up(3).plot()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_off_a_terminal_a_line_comes_now_and_then_with_the_time_left(tiny):
    out, clock = io.StringIO(), Clock()
    lines = Lines("night", tiny.budget, trials_of(tiny), out, clock)
    for clock.now in range(0, 200, 5):
        lines.show(clock.now / 100, "best 0.1" if clock.now == 0 else "")
    said = out.getvalue().splitlines()
    assert len(said) == 1 + (195 - FIRST) // BETWEEN
    left = tiny.budget * 100 - FIRST
    assert said[0] == f"night: 0 of {tiny.budget} trials; about {in_words(left)} left; best 0.1"


def test_work_without_a_bar_says_once_how_long_it_goes_on_if_that_is_long(capsys):
    clock = Clock()
    for pace in (0.1, 1.0):
        clock.now = 0.0
        with saying_how_long("plan", clock):
            for i in range(1, 11):
                clock.now = i * pace
                tell(i / 10)
    assert capsys.readouterr().err == "plan: about 9 s left\n"


def test_a_plan_tells_how_many_of_its_rows_are_solved():
    told = []
    with listening(told.append):
        plan(3.0, 1e-5, 10, cohort=[5, 10], rounds=[1, 2])
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_a_study_run_into_a_log_is_not_silent(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("fedpareto.report.progress.FIRST", 0.0)
    log = io.StringIO()
    with progress(tiny, log) as watch, run(tiny, db=tmp_path / "s.db", watch=watch):
        pass
    assert f"of {tiny.budget} trials" in log.getvalue()


def test_lengths_of_time_are_said_as_people_say_them():
    assert [in_words(s) for s in (4.4, 130, 9000)] == ["4 s", "2 min", "2.5 h"]


@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    for name in ("quickstart.ipynb", "quickstart.toml"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    notebook = nbformat.read(tmp_path / "quickstart.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [o.data for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "data" in o]
    assert any("<svg" in data.get("text/html", "") for data in shown)
    assert any("image/png" in data for data in shown)
    said = "".join(o.text for c in notebook.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "stream")
    assert "ipywidgets" not in str(notebook)
    assert "Warning" not in said
    (bar,) = [data for data in shown if "<progress" in data.get("text/html", "")]
    assert '<progress value="40" max="40">' in bar["text/html"]
    assert re.match(r"quickstart: 40 of 40 trials; \d+ s; hypervolume \d", bar["text/plain"])


def test_the_line_of_a_notebook_has_the_time_left_and_shows_a_hostile_name_as_text():
    clock, looks = Clock(), []
    line = NotebookBar("<script>", 40, lambda done: f"{done:.0f} of 40 trials", clock)
    line.changed = lambda: looks.append(repr(line))
    for clock.now, done in ((0.0, 10), (0.1, 11), (3.0, 20)):
        line.show(done, "")
    assert looks == ["<script>: 10 of 40 trials", "<script>: 20 of 40 trials; about 6 s left"]
    assert "<script>" not in line._repr_html_()
