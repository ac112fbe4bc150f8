"""What is left of a study costs, in seconds of training, before it is trained."""

from __future__ import annotations

from fedpareto.store import Store
from fedpareto.study import Study


def cost_left(study: Study, store: Store | None, workers: int | None = None) -> str:
    """Return a line that says how many trainings are left, and what they cost by those so far."""
    left = study.budget * study.repeats - (store.trainings() if store else 0)
    if left <= 0:
        return "cost: nothing is left to train"
    works = store.works().values() if store else ()
    trainings = sum(work.trainings for work in works)
    if trainings == 0:
        return (
            f"cost: at most {left} trainings; what one takes is not known before the first. To "
            "know it, run with a small --budget, then again: nothing is trained twice."
        )
    each = sum(work.seconds for work in works) / trainings
    total = left * each
    line = (
        f"cost: at most {left} trainings of {each:.3g} s (the mean of {trainings} so far) are "
        f"{total:.0f} s of one worker, {total / 3600:.3g} hours"
    )
    if workers:
        line += f"; {workers} workers need at least {total / workers:.0f} s"
    return line
