"""What `fedpareto plan` is told of the records of silos, and what does nothing beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedpareto.cli.base import whole_numbers
from fedpareto.errors import SettingError

# Options that say nothing of a record, and why
IDLE = {
    "view": "noise on local steps hides a record from anyone who sees the uploads",
    "sampling": "that a client may stay out of a round is not counted for its records",
    "dropouts": "the noise of other clients is not counted for a record",
    "colluders": "the noise of other clients is not counted for a record",
}


def checked_records(asked: Mapping[str, Any], study: Path | None) -> int | list[int] | None:
    """Return how many records silos hold: one number for all, or one a client; None for clients.

    A plan of records that leaves them out, or names what does nothing for them, is refused.
    """
    sizes = whole_numbers("--records", asked["records"])
    if asked["unit"] != "record":
        return sizes[0] if sizes else None  # refused where it is priced
    for name, why in IDLE.items():
        source = click.get_current_context().get_parameter_source(name)
        if source is click.core.ParameterSource.COMMANDLINE:
            raise SettingError(
                f"--{name}: must be left out with --unit record, found {asked[name]}: {why}."
            )
    if sizes is None:
        raise SettingError(
            "--records: must be given with --unit record, found none: how far one record moves a "
            "step follows from how many a client holds. Give --batch-size and --local-steps too."
        )
    if len(sizes) == 1:
        return sizes[0]
    if study:
        raise SettingError(
            "--study: must go with one number of --records, found several: a known data set is "
            "dealt evenly. Leave it out, and put the noise of a row into a study of your own data "
            'with split = "site", whose ε is the same.'
        )
    return sizes
