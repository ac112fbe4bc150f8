"""The store: one SQLite file per study, whose rows are the whole state of it."""

from fedpareto.store.schema import APPLICATION, MIGRATIONS
from fedpareto.store.store import Store, differences

__all__ = ["APPLICATION", "MIGRATIONS", "Store", "differences"]
