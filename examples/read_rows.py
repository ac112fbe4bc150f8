"""Read a study's database from Python: python examples/read_rows.py STUDY.db"""

import sys

from fedpareto import Store

with Store.read(sys.argv[1]) as store:
    print(store.name, store.identity["mechanism"])
    print(store.finished(), "of", len(store), "trials finished")
    for trial in store.trials("done")[:5]:
        measures = trial.measures
        print(trial.number, trial.settings, measures["test_error"], measures.get("epsilon"))
