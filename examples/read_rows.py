"""Read a study's database from Python: python examples/read_rows.py STUDY.db"""

import sys

from fedpareto import Store

with Store.read(sys.argv[1]) as store:
    print(
        store.name,
        store.identity["mechanism"],
        f"{store.finished()} of {len(store)} trials finished",
    )
    for trial in store.trials("done")[:5]:
        print(
            trial.number,
            trial.settings,
            trial.measures["test_error"],
            trial.measures.get("epsilon"),
        )
