"""The page in a browser: drag, hover, keys, axes, copies; from a file, with nothing else at hand."""

from __future__ import annotations

import ast
import http.server
import json
import math
import threading
import time
import tomllib
from dataclasses import replace

import pytest

from fedpareto import load_study, pick, run, view, write_page
from fedpareto.errors import SettingError
from fedpareto.report.page import page, page_data
from fedpareto.study.write import fixed_study

from .pages import address, made_up, proxied
from .test_points import study, trials


@pytest.fixture(scope="module")
def three():
    return proxied(made_up(200, 3))


def ringed(tab, name="best"):
    return int(tab.locator(f"#ring-{name}").get_attribute("data-index"))


def place(tab, i):
    """Return where a point stands on the screen."""
    return tab.evaluate("i => { const b = plot.over.getBoundingClientRect(); return [b.left + plot.px[i], b.top + plot.py[i]]; }", i)


def limits_of(tab):
    return tab.evaluate("state.limits")


def settle(tab):
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def drag(tab, name, to):
    """Drag a limit across a spot of the screen."""
    box, upright = tab.locator(f"{name} .hit").bounding_box(), name == "#limit-x"
    x = box["x"] + (box["width"] / 2 if upright else 300)
    y = box["y"] + (250 if upright else box["height"] / 2)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(*((to[0], y) if upright else (x, to[1])), steps=6)
    tab.mouse.up()
    settle(tab)


@pytest.mark.parametrize("m", [2, 3])
def test_dragging_a_limit_recommends_what_python_picks(shown, m):
    seen = made_up(200, m)
    tab = shown(seen)
    assert seen.points[ringed(tab)] is seen.recommended
    recommended = [seen.recommended.trial]
    for name, dx, dy in [("#limit-x", -5, 0), ("#limit-x", 900, 0), ("#limit-y", 0, 5)]:  # so as to exclude it, back, and again
        x, y = place(tab, ringed(tab))
        drag(tab, name, (x + dx, y + dy))
        chosen = pick(seen, limits_of(tab))[0]
        assert seen.points[ringed(tab)] is chosen
        assert tab.locator("#choice-state").inner_text() == f"trial {chosen.trial}"
        recommended.append(chosen.trial)
    assert recommended[0] == recommended[2]
    assert recommended[0] not in (recommended[1], recommended[3])


def test_the_rule_is_pythons_for_many_limits(shown, three):
    tab = shown(three)
    for k in range(60):
        limits = {o.name: 0.15 + 0.8 * ((7 * k + 13 * j) % 60) / 60 for j, o in enumerate(three.objectives) if (k + j) % 3}
        found = tab.evaluate("l => recommend(l).index", limits)
        try:
            expected = next(i for i, p in enumerate(three.points) if p is pick(three, limits)[0])
        except SettingError:
            expected = None
        assert found == expected


def test_a_limit_fades_what_it_excludes_and_says_when_nothing_is_left(shown, three):
    tab = shown(three)
    before = tab.evaluate("state.inside.reduce((a, b) => a + b, 0)")
    tab.locator("#limit-of-1").fill("0.2")
    tab.locator("#limit-of-1").press("Enter")
    settle(tab)
    held = sum(p.feasible and p.objectives["leakage"] <= 0.2 for p in three.points)
    assert tab.evaluate("state.inside.reduce((a, b) => a + b, 0)") == held < before
    tab.locator("#limit-of-1").fill("-1")
    tab.locator("#limit-of-1").press("Enter")
    settle(tab)
    assert "No trial holds leakage ≤ -1. The least of each by itself, in trials of their own: loss" in tab.locator("#why").inner_text()
    tab.locator("#reset").click()
    assert three.points[ringed(tab)] is three.recommended


def test_the_studys_own_limit_cannot_be_loosened(shown, three):
    tab = shown(three)
    tab.locator("#limit-of-2").fill("0.99")
    tab.locator("#limit-of-2").press("Enter")
    settle(tab)
    assert limits_of(tab) == {}
    assert tab.locator("#limit-of-2").input_value() == "0.9"


def test_hover_shows_the_right_trial_and_a_click_picks_it(shown, three):
    tab = shown(three)
    other = next(i for i, p in enumerate(three.points) if all(p is not q for q in three.front) and p.feasible)
    for i in [next(k for k, p in enumerate(three.points) if p is three.front[2]), other]:
        tab.mouse.move(*place(tab, i))
        tip, point = tab.locator("#tip").inner_text(), three.points[i]
        assert tip.startswith(f"trial {point.trial}")
        assert f"rate: {point.settings['rate']:.4g}" in tip
        assert ("on the front" in tip) == any(point is p for p in three.front)
        tab.mouse.click(*place(tab, i))
        assert ringed(tab, "pick") == i
        assert tab.locator("#choice-title").inner_text() == "Your pick"
        assert f"{point.settings['rate']:.4g}" in tab.locator("#settings").inner_text()
    assert three.points[ringed(tab)] is three.recommended
    tab.locator("#unpick").click()
    assert tab.locator("#choice-title").inner_text() == "Recommended"


def test_keys_reach_points_and_limits(shown, three):
    tab = shown(three)
    reached = []
    for _ in range(16):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id"))
    assert {"theme", "x-axis", "y-axis", "points", "limit-x", "limit-y"} <= set(reached)
    tab.locator("#points").focus()
    tab.keyboard.press("Home")
    first = ringed(tab, "near")
    assert three.points[first].objectives["leakage"] == min(p.objectives["leakage"] for p in three.front)
    assert tab.locator("#tip").inner_text().startswith(f"trial {three.points[first].trial}, on the front")
    tab.keyboard.press("ArrowRight")
    second = ringed(tab, "near")
    assert second != first
    tab.keyboard.press("Enter")
    assert ringed(tab, "pick") == second
    tab.keyboard.press("Escape")
    assert tab.locator("#choice-title").inner_text() == "Recommended"
    tab.locator("#limit-x").focus()
    for _ in range(5):
        tab.keyboard.press("PageDown")
        settle(tab)
    handle = tab.locator("#limit-x")
    assert float(handle.get_attribute("aria-valuenow")) == limits_of(tab)["leakage"]
    assert "leakage ≤" in handle.get_attribute("aria-valuetext")
    assert three.points[ringed(tab)] is pick(three, limits_of(tab))[0]
    tab.keyboard.press("Delete")
    settle(tab)
    assert limits_of(tab) == {}


def test_axes_can_be_chosen_and_budgets_draw_a_curve_each(shown, three):
    tab = shown(three)
    legend = tab.locator("#legend").inner_text()
    assert legend.count("front, shared ≤") == 3
    tab.locator("#x-axis").select_option("o:shared")
    assert "front, leakage ≤" in tab.locator("#legend").inner_text()
    tab.locator("#x-axis").select_option("s:rate")
    tab.locator("#x-log").check()
    assert "rate (log) →" in tab.locator("#front").text_content()
    assert tab.locator("#third").is_hidden()
    assert three.points[ringed(tab)] is three.recommended
    i = ringed(tab)
    assert place(tab, i)[0] > tab.locator("#points").bounding_box()["x"]
    tab.locator("#x-axis").select_option("o:leakage")
    assert "leakage (proxy) →" in tab.locator("#front").text_content()


def test_an_axis_is_logarithmic_where_values_span_more_than_two_decades(shown):
    seen = made_up(60, 2)
    points = [replace(p, objectives=p.objectives | {"loss": 10 ** (4 * p.objectives["loss"])}) for p in seen.points]
    at = {id(p): q for p, q in zip(seen.points, points, strict=True)}
    wide = replace(seen, points=tuple(points), front=tuple(at[id(p)] for p in seen.front), recommended=at[id(seen.recommended)])
    tab = shown(wide)
    assert tab.locator("#y-log").is_checked()
    assert not tab.locator("#x-log").is_checked()
    tab.locator("#y-log").uncheck()
    assert "↑ loss (log)" not in tab.locator("#front").text_content()


def test_the_number_of_a_trial_is_never_an_outlier(shown):
    tab = shown(made_up(8, 1, names=("loss",)))
    assert tab.locator("#x-axis").input_value() == "t:trial"
    assert tab.locator("#beyond").is_hidden()
    assert tab.locator("#all-label").is_hidden()
    for front in range(8):  # wherever on the axis the front ends
        tab.evaluate("i => { data.points.front = [i]; columns = table(); draw(); }", front)
        assert tab.evaluate("[...plot.px.keys()].filter((i) => plot.x.at(i) > plot.right || plot.x.at(i) < plot.left)") == []


def test_what_lies_far_beyond_a_limit_does_not_squash_the_front(shown):
    seen = made_up(60, 2)
    points = (*seen.points, replace(seen.points[0], trial=999, feasible=False, objectives={"loss": 0.5, "leakage": 500.0}))
    tab = shown(replace(seen, points=points))
    tab.locator("#x-log").uncheck()
    xs = [place(tab, i)[0] for i, p in enumerate(seen.points) if any(p is q for q in seen.front)]
    assert max(xs) - min(xs) > 150
    assert "1 trial lies beyond the axes" in tab.locator("#beyond").inner_text()
    tab.locator("#all").check()
    assert tab.locator("#beyond").is_hidden()


def test_what_is_copied_is_the_picked_point_as_toml_and_as_python(tabs, finished_study):
    study = load_study(finished_study)
    with run(study) as store:
        seen = view(study, store.trials())
    tab = tabs(address(write_page(seen, finished_study.with_suffix(".html"))), permissions=["clipboard-read", "clipboard-write"])
    tab.locator("#table tbody button").first.click()
    point = seen.points[ringed(tab, "pick")]
    tab.locator("#copy-toml").click()
    tab.get_by_text("Copied").wait_for()
    copied = tab.evaluate("navigator.clipboard.readText()")
    ours = fixed_study(study, point.settings)
    assert tomllib.loads(copied) == tomllib.loads(ours)
    again = finished_study.with_name("again.toml")
    again.write_text(copied)
    assert load_study(again).budget == 1
    python = ast.parse(tab.locator("#python").inner_text())
    assert ast.literal_eval(python.body[1].value) == point.settings
    assert "fedpareto run tiny.toml --budget 2 --seed 1" in tab.locator("#commands").inner_text()
    assert "hardly any protection" in tab.locator("#epsilons").inner_text()
    assert "sent by all clients" in tab.locator("#costs").inner_text()
    assert "worst client" in tab.locator("#clients-words").inner_text()


def test_markup_in_a_name_a_setting_or_an_error_is_shown_and_not_run(shown):
    nasty = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>{{data}}'
    seen = made_up(30, 3, name=nasty, setting="<script>alert(3)</script>", full=True)
    tab = shown(seen)
    assert tab.locator("h1").inner_text() == nasty
    assert "<script>alert(3)</script>" in tab.locator("#settings").inner_text()
    i = ringed(tab)
    tab.mouse.move(*place(tab, i))
    assert "<script>alert(3)</script>" in tab.locator("#tip").inner_text()
    tab.mouse.click(*place(tab, i))
    tab.locator("#x-axis").select_option("s:<script>alert(3)</script>")
    assert tab.locator("img").count() == 0
    assert tab.locator("b b").count() == 0


def test_ten_thousand_trials_open_soon_and_move_smoothly(tabs, tmp_path, capsys):
    seen = made_up(10_000, 3, full=True)
    start = time.perf_counter()
    path = write_page(seen, tmp_path / "big.html")
    built = time.perf_counter() - start
    start = time.perf_counter()
    tab = tabs(address(path))
    tab.locator("#ring-best").wait_for(state="attached")
    opened = time.perf_counter() - start
    moved = tab.evaluate("""() => {
        const start = performance.now();
        for (let k = 0; k < 10; k++) { state.limits = { leakage: 0.5 - k * 0.02 }; refresh(); }
        return (performance.now() - start) / 10;
    }""")
    with capsys.disabled():
        print(f"\n10,000 trials: built in {built:.1f} s, {path.stat().st_size / 1e6:.1f} MB, open in {opened:.1f} s, {moved:.0f} ms a move")
    assert (built < 10, path.stat().st_size < 5e6, opened < 6, moved < 250) == (True, True, True, True)


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_screen_needs_no_scrolling_sideways(shown, three, width):
    tab = shown(three, width=width, has_touch=True)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.touchscreen.tap(*place(tab, ringed(tab)))
    assert tab.locator("#choice-title").inner_text() == "Your pick"


def test_light_and_dark_follow_the_system_and_a_button(shown, three):
    tab = shown(three, color_scheme="dark")
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("#theme").click()
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark, light) == ("rgb(18, 21, 24)", "rgb(244, 246, 248)")


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("m", [1, 2])
def test_few_trials_make_a_page_too(shown, rows, m):
    tab = shown(made_up(rows, m))
    assert tab.locator("h1").inner_text() == "made up"
    assert (tab.locator("#ring-best").count() == 1) == (rows > 0)


def test_where_no_trial_holds_the_studys_limits_the_page_says_so_and_shows_them(shown):
    rows = [(0.5, 0.5), (0.2, 0.7), (0.3, math.inf)]
    tab = shown(view(study(limit=0.1), trials(*rows, failed=["<b>diverged</b>"])))
    assert tab.locator("#why").inner_text().startswith("No trial holds every limit")
    assert tab.locator("#limits").is_hidden()
    assert "<b>diverged</b>" in tab.locator("#failures").inner_text()
    tab.mouse.click(*place(tab, 1))
    assert tab.locator("#choice-state").inner_text() == "trial 1, outside the limits"


def test_an_earlier_round_of_a_run_is_a_point_of_its_own(shown, three):
    early = replace(three.points[3], settings=three.points[3].settings | {"rate": 0.125}, measures={}, spread={})
    tab = shown(replace(three, points=(*three.points, early)))
    tab.evaluate("choose(200)")
    assert tab.locator("#choice-state").inner_text().startswith("an earlier round of trial 3")
    assert "0.125" in tab.locator("#settings").inner_text()


class Rows(http.server.BaseHTTPRequestHandler):
    """A page and its data that change while it is looked at."""

    seen = None
    asked: list[str | None] = []  # noqa: RUF012

    def do_GET(self):
        data = self.path == "/data.json"
        body = json.dumps(page_data(Rows.seen)) if data else page(Rows.seen, live="data.json")
        if data:
            Rows.asked.append(self.headers.get("If-None-Match"))
        tag = f'"{Rows.seen.evaluations}"'
        same = data and self.headers.get("If-None-Match") == tag
        self.send_response(304 if same else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Type", "application/json" if data else "text/html; charset=utf-8")
        self.end_headers()
        if not same:
            self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def test_a_live_page_takes_new_rows_and_keeps_what_was_chosen(tabs):
    Rows.seen, Rows.asked = made_up(40, 3), []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Rows)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab = tabs(f"http://127.0.0.1:{server.server_port}/")
        tab.locator("#x-axis").select_option("o:shared")
        tab.locator("#table tbody button").nth(1).click()
        tab.locator("#limit-of-1").fill("0.4")
        tab.locator("#limit-of-1").press("Enter")
        before = tab.evaluate("state.pick")
        tab.wait_for_timeout(1300)
        Rows.seen = made_up(90, 3)
        tab.get_by_text("Live: 90 of 90 trials").wait_for(timeout=5000)
        assert "90 trials" in tab.locator("#summary").inner_text()
        assert (tab.evaluate("state.pick"), tab.locator("#x-axis").input_value(), limits_of(tab)) == (before, "o:shared", {"leakage": 0.4})
        assert Rows.seen.points[ringed(tab, "best")] is pick(Rows.seen, {"leakage": 0.4})[0]
        assert '"40"' in Rows.asked
    finally:
        server.shutdown()
        server.server_close()
