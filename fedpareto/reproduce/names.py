"""Every figure and table by its name."""

from __future__ import annotations

from collections.abc import Sequence

from fedpareto.errors import SettingError, did_you_mean
from fedpareto.reproduce import gu24, gu24_cases, gu24_cost, gu24_why, kang23, races, xiao25
from fedpareto.reproduce.experiment import Experiment

NAMES = (
    *("gu24-fig2a", "gu24-fig2b", "gu24-fig2c", "gu24-fig3", "gu24-fig4", "gu24-fig5"),
    *("gu24-fig6", "gu24-table2", "gu24-table3", "gu24-why"),
    *("kang23-fig3", "kang23-fig4", "kang23-fig5", "kang23-fig6", "kang23-mechanisms"),
    *("xiao25-table1", "xiao25-fig3", "xiao25-fig4", "xiao25-fig5"),
)
_FOUND = {
    e.name: e
    for part in (gu24, gu24_cases, gu24_cost, gu24_why, races, kang23, xiao25)
    for e in part.EXPERIMENTS
}
EXPERIMENTS: dict[str, Experiment] = {name: _FOUND[name] for name in NAMES}


def named(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments of these names; without names, all."""
    for name in names:
        if name not in NAMES:
            raise SettingError(
                f"reproduce: must name a figure or table of --list, found {name!r}. "
                f"{did_you_mean(name, NAMES)}"
            )
    return [EXPERIMENTS[name] for name in NAMES if name in (names or NAMES)]
