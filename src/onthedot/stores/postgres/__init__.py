"""The Postgres store: one database, any number of machines."""

from onthedot.stores.postgres.store import PostgresStore
from onthedot.stores.postgres.url import PostgresAddress

__all__ = ["PostgresAddress", "PostgresStore"]
