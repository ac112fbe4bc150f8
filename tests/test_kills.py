"""Kill studies anywhere, a third of the times while a database is made or closed: none is stuck, none ends otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_guides import small
from test_resume import SMALL

from fedpareto.mechanisms import MECHANISMS

EXAMPLES = Path(__file__).parents[1] / "examples"
SHRUNK = ("sparsification", "compression", "batchcrypt")  # examples, each with its mechanism
PARTS = {  # what the study of an optimizer has in place of noise on models, so that no part is left out
    "random": 'name = "none"',
    "grid": 'name = "pruning"\nprune_rate = [0.0, 0.9]',
    "fedmoeac": 'name = "quantization"\nbits = { choices = [2, 8] }\nrounding = "stochastic"',
    "psl": 'name = "none"\n[local]\nname = "dp_sgd"\nrecord_noise_multiplier = [0.5, 4.0]\nrecord_clipping_norm = 1.0\n[privacy]\nunit = "record"',
    "qlognehvi": 'name = "none"\n[server]\nname = "adam"\nserver_learning_rate = [0.001, 0.1]',
}

# One process imports torch once, runs each study undisturbed on one thread, then forks children and kills them.
KILLER = """
import contextlib, json, os, random, signal, sqlite3, sys, time, traceback, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from fedpareto import Store, load_study, run, verify

FILES = (os.fsync, os.replace, os.unlink, os.open)

def aim(place, left):
    # kill before or after the call number `left` on files and database, from the start or from the store's closing on
    counting = place == "making"
    def look(frame, event, what):
        nonlocal left, counting
        if event == "call":
            counting |= frame.f_code.co_name == "close" and frame.f_code.co_filename.endswith("store.py")
        elif counting and event in ("c_call", "c_return"):
            of = type(getattr(what, "__self__", None)).__name__
            if of in ("Connection", "Cursor") or what in FILES or what is sqlite3.connect:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(look)

def begun(study, db, place=None, left=0):
    child = os.fork()
    if child:
        return child
    try:
        if place:
            aim(place, left)
        run(study, db).close()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)

def ended(child):
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"a run ended with status {status}"
    return status == signal.SIGKILL

def rows(db):
    with contextlib.closing(sqlite3.connect(db)) as c:
        return [c.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in ("study", "trials", "repeats")]

def alone(path):
    start = time.monotonic()
    run(load_study(path), path.with_suffix(".alone")).close()
    return time.monotonic() - start

def killed_often(path, kills, luck, took, count):
    study, alone = load_study(path), path.with_suffix(".alone")
    while count["aimed"] + count["anywhere"] < kills:
        db = path.with_name(f"{path.stem}-{count['rounds']}.db")
        count["aimed"] += ended(begun(study, db, "making", luck.randrange(1, 60)))
        for _ in range(3):
            child = begun(study, db)
            time.sleep(luck.random() * took * 0.5)
            os.kill(child, signal.SIGKILL)
            count["anywhere"] += ended(child)
        count["aimed"] += ended(begun(study, db, "closing", luck.randrange(1, 8)))
        assert not ended(begun(study, db)), "the last run was killed by nobody"
        assert rows(db) == rows(alone), f"{db} differs"
        with Store.read(db) as store:
            wrong = list(verify(study, store)) if count["rounds"] == 0 else []
        assert wrong == [], wrong
        count["rounds"] += 1

luck = random.Random(int(sys.argv[3]))
kills = int(sys.argv[2])
took = {path: alone(path) for path in sorted(Path(sys.argv[1]).glob("*.toml"))}
count = {path: {"aimed": 0, "anywhere": 0, "rounds": 0} for path in took}
for path in took:
    killed_often(path, kills // 25, luck, took[path], count[path])
left = kills - sum(c["aimed"] + c["anywhere"] for c in count.values())
for path in sorted(took, key=took.get)[:3]:  # the rest are of the quickest
    killed_often(path, kills // 25 + left // 3 + 2, luck, took[path], count[path])
print(json.dumps({path.stem: c for path, c in count.items()}))
"""


def with_part(text: str, part: str) -> str:
    """Return a study with another part, judged by what is there with any."""
    before, rest = text.split("[mechanism]")
    utility = rest[rest.index("[objectives.utility_loss]"):rest.index("[objectives.leakage]")]
    return f"{before}[mechanism]\n{part}\n{utility}[objectives.test_loss]\nreference = 10.0\n"


def test_every_mechanism_is_killed() -> None:
    shrunk = [tomllib.loads((EXAMPLES / f"{name}.toml").read_text())["mechanism"]["name"] for name in SHRUNK]
    others = [tomllib.loads(f"[mechanism]\n{text}")["mechanism"]["name"] for text in PARTS.values()]
    assert {*shrunk, *others, "randomization"} == set(MECHANISMS)  # that of every other optimizer


@pytest.mark.parametrize(("kills", "seed"), [(100, 100), *(pytest.param(250, seed, marks=pytest.mark.slow) for seed in range(4))])
def test_no_study_that_is_killed_is_stuck_or_ends_otherwise(tmp_path: Path, study_text: str, kills: int, seed: int) -> None:
    text = study_text.split("[optimizer]")[0].replace("budget = 2", "budget = 8\nblock = 2")
    for name, more in SMALL.items():
        study = with_part(text, PARTS[name]) if name in PARTS else text
        (tmp_path / f"{name}.toml").write_text(f'{study}[optimizer]\nname = "{name}"\n{more}\n')
    ahead = text.replace("block = 2", "block = 2\nin_flight = 1")  # batches that overlap
    (tmp_path / "ahead.toml").write_text(f'{ahead}[optimizer]\nname = "nsga2"\n{SMALL["nsga2"]}\n')
    for name in SHRUNK:
        shrunk = small((EXAMPLES / f"{name}.toml").read_text()).replace("budget = 12", "budget = 6")
        shrunk = shrunk.replace('"fashion-mnist"', '"digits"').replace("share = 0.1\n", "")
        (tmp_path / f"{name}.toml").write_text(shrunk)
    done = subprocess.run([sys.executable, "-c", KILLER, str(tmp_path), str(kills), str(seed)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counted = json.loads(done.stdout)
    print(counted)
    assert sum(c["aimed"] + c["anywhere"] for c in counted.values()) >= kills
    assert sum(c["aimed"] for c in counted.values()) >= kills / 3
