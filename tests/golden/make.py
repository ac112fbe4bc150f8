"""Small studies whose every row is kept: a change of the engine must not change a bit of them.

    python tests/golden/make.py        # run them all and write rows.json anew

Only a change that is meant to give other rows makes them anew, and says so in the changelog.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from fedpareto import Study, load_study, run

FOLDER = Path(__file__).parent
ROWS = FOLDER / "rows.json"
STUDIES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def fingerprint() -> dict[str, str]:
    """Return what the last bits of a training depend on: torch and the instructions it uses."""
    import numpy
    import torch

    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {"torch": torch.__version__.split("+")[0], "numpy": numpy.__version__,
            "instructions": torch.backends.cpu.get_cpu_capability(), "processor": model[0] if model else ""}


def study(name: str) -> Study:
    return load_study(FOLDER / f"{name}.toml")


def rows_of(name: str, db: str | Path) -> list[dict[str, Any]]:
    """Run a study and return its rows as plain data."""
    with run(study(name), db) as store:
        return [json.loads(json.dumps({
            "settings": trial.settings, "point": trial.point, "measures": trial.measures, "error": trial.error,
            "spread": trial.spread, "curves": trial.curves, "runs": trial.runs})) for trial in store.trials()]


def main() -> None:
    kept: dict[str, Any] = {"fingerprint": fingerprint(), "studies": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in STUDIES:
            began = time.perf_counter()
            kept["studies"][name] = rows_of(name, Path(folder) / f"{name}.db")
            print(f"{name:16s} {len(kept['studies'][name]):3d} rows {time.perf_counter() - began:6.1f} s")
    lines = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in kept["studies"].items())
    ROWS.write_text(f'{{"fingerprint": {json.dumps(kept["fingerprint"])},\n"studies": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
