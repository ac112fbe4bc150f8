"""Audits as a whole: planned, said before, kept row by row, gone on with; nothing else changes."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import dataclass, replace

import pytest

from fedpareto import Store, load_study
from fedpareto.audit import ATTACKS, Attack, Canary, Finding, attacks_of, audit, plan
from fedpareto.errors import FedparetoError, SettingError
from fedpareto.store import Audit, last_of
from fedpareto.testing import check_attack

FEW = ("--attack", "canary", "--set", "canaries=100")


@dataclass(frozen=True)
class Same:
    """An attack that finds the same of every point."""

    number: int = 7

    def inapplicable(self, points, view):
        return None if view == "server" else "it looks at uploads"

    def seconds(self, points, view):
        return 10.0 * len(points)

    def within(self, share):
        return replace(self, number=max(1, int(self.number * share)))

    def audit(self, points, view, seed):
        return [Finding({"number": self.number, "sigma": s.get("sigma")}) for s in points.settings]


@dataclass(frozen=True)
class Slow(Same):
    """The same, which takes a while."""

    def audit(self, points, view, seed):
        time.sleep(0.2)
        return Same.audit(self, points, view, seed)


def dumped(path):
    """Return all rows of a database but those of audits."""
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as db:
        return [line for line in db.iterdump() if "audits" not in line]


def test_the_front_is_attacked_and_what_is_found_is_kept_and_printed(finished_study, fedpareto):
    db = finished_study.with_suffix(".db")
    before = dumped(db)
    done = fedpareto("audit", finished_study, *FEW, "--view", "server,secagg", "--json")
    assert done.status == 0, done.err
    assert re.search(r"attacking \d points?: canary \(server\), canary \(secagg\); about \d+ s\n", done.err)
    front = json.loads(fedpareto("front", finished_study, "--json").out)
    rows = json.loads(done.out)["audits"]
    assert {(r["trial"], r["attack"], r["view"]) for r in rows} == {
        (p["trial"], "canary", view) for p in front["points"] for view in ("server", "secagg")}
    for row in rows:
        assert {"epsilon", "epsilon_hat", "confidence", "canaries"} <= set(row["measures"])
        assert 0 < row["measures"]["epsilon_hat"] <= row["measures"]["epsilon"]
    with Store.read(db) as store:
        kept = store.audits()
    assert [json.loads(json.dumps(a.measures)) for a in kept] == [r["measures"] for r in rows]
    assert all(a.version and a.options == {"canaries": 100, "confidence": 0.999} for a in kept)
    assert dumped(db) == before  # neither the study nor its trials changed


def test_the_same_command_goes_on_where_it_stood(finished_study, fedpareto, monkeypatch):
    attack, calls = Canary.audit, []

    def interrupted(self, points, view, seed):
        calls.append(view)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return attack(self, points, view, seed)

    monkeypatch.setattr(Canary, "audit", interrupted)
    stopped = fedpareto("audit", finished_study, *FEW)
    assert stopped.status == 130
    assert stopped.err.endswith("error: stopped. What was finished is kept; the same command goes on from there.\n")
    done = fedpareto("audit", finished_study, *FEW, "--json")
    assert calls == ["server", "secagg", "secagg", "release"]
    assert "done before; another --seed attacks afresh" in done.err
    again = fedpareto("audit", finished_study, *FEW, "--json")
    assert (calls[4:], again.out) == ([], done.out)
    monkeypatch.undo()
    with Store.read(finished_study.with_suffix(".db")) as store:
        resumed = store.audits()
    problem = load_study(finished_study).problem
    chosen = list(dict.fromkeys((a.trial, json.dumps(a.settings)) for a in resumed))
    alone = audit(plan(problem, [(t, json.loads(s)) for t, s in chosen], {"canary": Canary(100)}))
    assert [a.measures for a in alone] == [a.measures for a in resumed]  # as if never interrupted


def test_another_seed_attacks_afresh_and_the_last_of_each_counts(finished_study, fedpareto):
    first = fedpareto("audit", finished_study, *FEW, "--view", "server", "--json").out
    second = fedpareto("audit", finished_study, *FEW, "--view", "server", "--seed", 1, "--json").out
    assert first != second
    with Store.read(finished_study.with_suffix(".db")) as store:
        rows = store.audits()
    assert {a.seed for a in rows} == {0, 1}
    assert {a.seed for a in last_of(rows)} == {1}


def test_within_a_time_less_is_tried(finished_study):
    problem = load_study(finished_study).problem
    points = [(i, {"learning_rate": 0.1, "sigma": 0.5, "clipping_norm": 1.0}) for i in range(25)]
    whole = plan(problem, points, {"same": Same(100)}, seconds=1000)
    assert (whole.seconds, [len(j.points) for j in whole.jobs]) == (pytest.approx(1000), [1, 20, 4])
    assert {a.measures["number"] for a in audit(whole)} == {100}
    assert plan(problem, points, {"same": Same(100)}).seconds == 250
    assert whole.without == {"same, secagg": "it looks at uploads", "same, release": "it looks at uploads"}
    short = plan(problem, points, {"same": Same(100)}, seconds=25)
    assert short.seconds == pytest.approx(25)
    assert [a.measures["number"] for a in audit(short)][:21] == pytest.approx([10] * 21, abs=1)  # a tenth of ten seconds each
    done = list(audit(short))
    assert plan(problem, points, {"same": Same(100)}, seconds=30, done=done).jobs == ()
    assert sum(len(j.points) for j in plan(problem, points, {"same": Same(100)}, done=done).jobs) >= 21  # in full it was not done
    late = list(audit(plan(problem, points, {"slow": Slow(100)}, seconds=0.1)))
    assert [a.trial for a in late] == [0]  # the first point comes first, and nothing begins when time is up


def test_what_time_was_too_short_for_is_said_and_gone_on_with(finished_study, fedpareto, monkeypatch):
    monkeypatch.setitem(ATTACKS, "slow", Slow)
    points = len(json.loads(fedpareto("front", finished_study, "--json").out)["points"])
    words = ("--attack", "slow", "--view", "server", "--seconds", "0.1", "--json")
    first = fedpareto("audit", finished_study, *words)
    assert f"time is up, {points - 1} attacks are left: the same command goes on with them" in first.err
    for _ in range(2):
        done = fedpareto("audit", finished_study, *words)
    assert len(json.loads(done.out)["audits"]) == points
    assert json.loads(first.out)["audits"][0] in json.loads(done.out)["audits"]


def test_an_attack_of_ones_own_is_named_by_its_path(finished_study, fedpareto):
    (finished_study.parent / "my_attack.py").write_text('''
from dataclasses import dataclass
from fedpareto.audit import Finding

@dataclass(frozen=True)
class Mine:
    depth: int = 3
    def inapplicable(self, points, view):
        return None if view == "server" else "it looks at uploads"
    def seconds(self, points, view):
        return 0.0
    def within(self, share):
        return self
    def audit(self, points, view, seed):
        return [Finding({"depth": self.depth}) for _ in points.trials]

@dataclass(frozen=True)
class Broken(Mine):
    def audit(self, points, view, seed):
        return 1 / 0

@dataclass(frozen=True)
class Less:
    depth: int = 3
''')
    done = fedpareto("audit", finished_study, "--attack", "my_attack:Mine", "--set", "depth=5", "--json")
    assert done.status == 0, done.err
    assert {r["attack"]: r["measures"] for r in json.loads(done.out)["audits"]} == {"my_attack:Mine": {"depth": 5}}
    assert fedpareto("audit", finished_study, "--attack", "my_attack:Broken").err.splitlines()[-1] == (
        "error: audit: attack my_attack:Broken must run to its end, found ZeroDivisionError: division by zero. Try it with "
        "fedpareto.testing.check_attack.")
    assert fedpareto("audit", finished_study, "--attack", "my_attack:Less").err == (
        "error: --attack: my_attack:Less must have inapplicable, seconds, within and audit, found Less. Try it with "
        "fedpareto.testing.check_attack.\n")


REFUSED = {
    ("--attack", "canry"): f"--attack: must be one of {', '.join(ATTACKS)}, or your own as package.module:Name, found 'canry'. Did you mean 'canary'?",
    ("--view", "servr"): "--view: must be of server, secagg, release, found 'servr'. Did you mean 'server'?",
    ("--attack", "canary", "--set", "canaris=3"): "--set: must name a setting of canary, found 'canaris'. Did you mean 'canaries'?",
    ("--set", "canaries=many"): "--set: must be NAME=VALUE with a number, found 'canaries=many'.",
    ("--set", "canaries=3"): "canaries: must be at least 100, found 3.",
    ("--seconds", "0"): "--seconds: must be above 0 and at most 1e+09, found 0.",
    ("--seconds", "inf"): "--seconds: must be above 0 and at most 1e+09, found inf.",
    ("--seconds", "nan"): "--seconds: must be above 0 and at most 1e+09, found nan.",
    ("--trial", "99"): "--trial: must be a trial that was measured, found 99. `fedpareto front` lists those on the front.",
    ("--trial", "0", "--front"): "audit: --trial must stand without --front, found both. Leave one out.",
}


WRONG_ATTACKS = {  # how an attack of one's own goes wrong → what is said
    "def seconds(self, points, view): return float('nan')": "seconds must return a number of at least 0, not nan",
    "def seconds(self, points, view): return 'long'": "TypeError",
    "def seconds(self, points, view): return 99.0\n    def within(self, share): return None": "within must return an attack, not NoneType",
    "def inapplicable(self, points, view): raise SystemExit(0)": "SystemExit: 0",
    "def audit(self, points, view, seed): return []": "ValueError",
    "def audit(self, points, view, seed): return None": "TypeError",
    "def audit(self, points, view, seed): return [{'a': 1}] * len(points)": "AttributeError",
    "def audit(self, points, view, seed): return [Finding({'a': object()})] * len(points)": "TypeError: Object of type object is not JSON serializable",
    "def audit(self, points, view, seed): return [Finding(3)] * len(points)": "TypeError",
    "def audit(self, points, view, seed): return [Finding({'a': 1}, b'GIF89a')] * len(points)": "TypeError: a picture must be the bytes of a PNG",
    "def __post_init__(self): raise OSError('gone')": "OSError: gone",
}


@pytest.mark.parametrize("wrong", WRONG_ATTACKS)
def test_an_attack_of_ones_own_that_goes_wrong_is_named_and_nothing_of_it_is_kept(finished_study, fedpareto, wrong):
    module = f"wrong_{abs(hash(wrong))}"
    finished_study.with_name(f"{module}.py").write_text(f"""from dataclasses import dataclass
from fedpareto.audit import Finding

@dataclass(frozen=True)
class Mine:
    def inapplicable(self, points, view): return None
    def seconds(self, points, view): return 0.0
    def within(self, share): return self
    def audit(self, points, view, seed): return [Finding({{"a": 1}})] * len(points)
    {wrong}
""")
    before = finished_study.with_suffix(".db").read_bytes()
    done = fedpareto("audit", finished_study, "--attack", f"{module}:Mine", "--view", "server", "--seconds", "1")
    assert done.status == 2
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: audit: attack {module}:Mine must run to its end, found ")
    assert WRONG_ATTACKS[wrong] in last
    with Store.read(finished_study.with_suffix(".db")) as store:
        assert store.audits() == []
    assert len(before) == finished_study.with_suffix(".db").stat().st_size


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_is_refused(finished_study, fedpareto, words):
    done = fedpareto("audit", finished_study, *words)
    assert (done.status, done.err) == (2, f"error: {REFUSED[words]}\n")


def test_a_study_without_federation_or_rows_has_nothing_to_attack(tiny_study, fedpareto):
    class Other:
        pass

    with pytest.raises(SettingError, match="audit: must be of a federation, found Other: nothing is trained that could be attacked"):
        plan(Other(), [], {})
    assert "Run the study first" in fedpareto("audit", tiny_study).err


def test_an_alarm_ends_with_status_1(finished_study, fedpareto, monkeypatch):
    monkeypatch.setattr(Canary, "audit", lambda self, points, *_: [
        Finding({"epsilon": 1.0, "epsilon_hat": 2.0, "alarm": True}) for _ in points.trials])
    done = fedpareto("audit", finished_study, *FEW, "--view", "server")
    assert done.status == 1
    assert "ALARM: ε̂ is above the claim, twice with fresh randomness" in done.out
    assert "A failed attack proves nothing" in done.out


def test_a_run_that_is_at_work_keeps_the_database(finished_study, fedpareto):
    study = load_study(finished_study)
    with Store.write(finished_study.with_suffix(".db"), study.name, study.identity, study.repeats):
        done = fedpareto("audit", finished_study, *FEW, "--view", "server")
    assert "found another run of this study at work" in done.err


def test_numbers_that_are_not_finite_are_null(finished_study):
    study = load_study(finished_study)
    path = finished_study.with_suffix(".db")
    with Store.write(path, study.name, study.identity, study.repeats) as store:
        store.add_audits([Audit(0, {}, "a", "server", 0, {}, {"x": float("nan"), "y": [float("inf"), 1]}, b"\x89PNG\r\n\x1a\n", "0")])
        assert store.audits()[0].measures == {"x": None, "y": [None, 1]}
        assert store.audits()[0].picture == b"\x89PNG\r\n\x1a\n"


def test_checks_of_attacks_find_what_does_not_hold():
    def wrong(**methods):
        return dataclass(frozen=True)(type("Wrong", (), {**{n: getattr(Same, n) for n in ("inapplicable", "seconds", "within", "audit")}, **methods}))()

    check_attack(Same())
    luck = iter(range(99))
    for attack, why in [
        (wrong(inapplicable=lambda *_: ""), "inapplicable must be None or say why"),
        (wrong(inapplicable=lambda *_: "never"), "must apply to some view"),
        (wrong(seconds=lambda *_: -1.0), "seconds must be a number of at least 0, found -1.0"),
        (wrong(within=lambda *_: None), "within must return an attack"),
        (wrong(within=lambda self, _: self, audit=lambda *_: []), "must find something of each of 2 points, found 0"),
        (wrong(within=lambda self, _: self, audit=lambda _, points, *__: [Finding({"a": next(luck)}) for _ in points.trials]), "the same seed must give the same findings"),
        (wrong(within=lambda self, _: self, audit=lambda _, points, *__: [Finding({"a": {1}}) for _ in points.trials]), "measures must be plain data"),
        (wrong(within=lambda self, _: self, audit=lambda _, points, *__: [Finding({}) for _ in points.trials]), "measures must not be empty"),
        (wrong(within=lambda self, _: self, audit=lambda _, points, *__: [Finding({"a": 1}, b"JPEG") for _ in points.trials]), "a picture must be a PNG"),
        (wrong(within=lambda self, _: self, audit=lambda _, points, *__: [Finding({"a": float(len(points))}) for _ in points.trials]), "must not depend on its neighbours"),
        (object(), "must be a frozen dataclass"),
    ]:
        with pytest.raises(AssertionError, match=why):
            check_attack(attack)


def test_every_attack_is_a_family_member_with_described_settings():
    from dataclasses import fields

    from fedpareto.settings import rule_of

    for name, cls in ATTACKS.items():
        made = attacks_of([name], {})[name]
        assert isinstance(made, Attack)
        assert all(rule_of(f).help for f in fields(cls))
    with pytest.raises(FedparetoError):
        attacks_of(["nothing"], {})


@pytest.mark.parametrize("changed", [False, True])
def test_a_refused_command_closes_the_database_that_it_had_opened(changed, finished_study, fedpareto, monkeypatch):
    """Python 3.13 complains of one that is left open."""
    closed, close = [], Store.close
    monkeypatch.setattr(Store, "close", lambda self: closed.append(self) or close(self))
    if changed:
        finished_study.write_text(finished_study.read_text().replace("rounds = 1", "rounds = 2"))
    assert fedpareto("audit", finished_study, *(() if changed else ("--attack", "canary", "--set", "canaris=3"))).status == 2
    assert len(closed) == 1
