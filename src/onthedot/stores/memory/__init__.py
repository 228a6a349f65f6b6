"""The memory store: gone with the process, and the reference of what the contract means."""

from onthedot.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
