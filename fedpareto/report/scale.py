"""Published reference points for the question whether an ε is acceptable, with their sources."""

from __future__ import annotations

from typing import TypedDict

from fedpareto.privacy import rounded_up


class Published(TypedDict):
    """A published ε: whose it is, and where it stands."""

    epsilon: float
    says: str
    source: str


NO_RULE = (
    "They differ in what one unit is (a person, a device, a day) and in δ: reference points, not "
    "rules."
)
SCALE: tuple[Published, ...] = (
    {
        "epsilon": 1,
        "says": "strong, by the tiers of a guide to private machine learning",
        "source": "Ponomareva et al. 2023, How to DP-fy ML, Section 5.2",
    },
    {
        "epsilon": 2.64,
        "says": "a day of one user in Google's COVID-19 mobility reports",
        "source": "Aktay et al. 2020, arXiv:2004.04145",
    },
    {
        "epsilon": 8.9,
        "says": "a device in the first keyboard model that Google trained with a stated ε, at "
        "δ = 1e-10; later ones have 0.994 to 13.69",
        "source": "Xu, Zhang 2024, Advances in private training for production on-device language "
        "models, Google Research",
    },
    {
        "epsilon": 10,
        "says": "the most that the same guide calls reasonable; beyond it the number alone says "
        "little",
        "source": "Ponomareva et al. 2023, How to DP-fy ML, Section 5.2",
    },
    {
        "epsilon": 17.14,
        "says": "a person in the redistricting data of the US census of 2020, δ = 1e-10",
        "source": "US Census Bureau 2021, privacy-loss budget of the redistricting data",
    },
)


def among_published(epsilon: float) -> str:
    """Say between which published values an ε stands."""
    below = [s for s in SCALE if s["epsilon"] <= epsilon]
    above = [s for s in SCALE if s["epsilon"] > epsilon]
    if not below:
        place = f"below the least, {_named(above[0])}"
    elif not above:
        place = f"above the largest, {_named(below[-1])}"
    else:
        place = f"between {_named(below[-1])}, and {_named(above[0])}"
    return f"Among published values, ε = {rounded_up(epsilon)} stands {place}. {NO_RULE}"


def _named(one: Published) -> str:
    return f"{one['epsilon']:g} ({one['says']}; {one['source']})"
