"""Data sets that need no file and no network: scikit-learn carries them."""

from __future__ import annotations

import numpy as np

from fedpareto.federation.formats import Arrays
from fedpareto.federation.tables import Table
from fedpareto.noise import rng

# how many patients each made-up hospital of the breast cancer table has, 569 in all
HOSPITALS = (92, 78, 66, 57, 49, 43, 38, 34, 31, 28, 27, 26)


def digits() -> Arrays:
    """Return the 1,797 handwritten digits of scikit-learn; every fifth is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    test = np.arange(len(y)) % 5 == 4
    return {"x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test]}


def breast_cancer() -> Table:
    """Return the breast cancer table of scikit-learn, dealt to made-up hospitals at random.

    Street, Wolberg and Mangasarian 1993: 30 measures of the cells of 569 patients, and a diagnosis.
    """
    from sklearn.datasets import load_breast_cancer

    held = load_breast_cancer()
    names = [chr(ord("A") + i) for i in range(len(HOSPITALS))]
    hospitals = rng(0, "hospitals").permutation(np.repeat(names, HOSPITALS))
    columns = {
        str(name): [repr(float(v)) for v in column]
        for name, column in zip(held.feature_names, held.data.T, strict=True)
    }
    return {
        "hospital": hospitals.tolist(),
        **columns,
        "diagnosis": [str(held.target_names[label]) for label in held.target],
    }


TABLES = {"breast-cancer": breast_cancer}
EMBEDDED = ("digits", *TABLES)
