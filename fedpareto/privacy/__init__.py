"""What protection is worth: the papers' leakage formulas, each a named proxy."""

from fedpareto.privacy.leakage import kang23_eq13

__all__ = ["kang23_eq13"]
