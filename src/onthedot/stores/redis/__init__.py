"""The Redis store: any number of machines on one Redis or Valkey, alone, behind Sentinel or in a cluster."""

from onthedot.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
