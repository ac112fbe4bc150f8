"""Published reference points for the question whether an ε is acceptable, with their sources."""

from __future__ import annotations

SCALE = (
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
