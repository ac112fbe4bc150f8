"""Import what a user names by a dotted path, such as "package.module:Name"."""

from __future__ import annotations

import importlib
from typing import Any

from fedpareto.errors import SettingError


def imported(name: str) -> Any:
    """Return the class or function that a dotted path "package.module:Name" names."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise SettingError(
            f"{name!r} must be importable, found {type(error).__name__}: {error}. "
            "Install the package that holds it, or put the module beside the study file."
        ) from error
