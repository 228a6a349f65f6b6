"""The rules of the contract in Python: the verbs of memory and SQLite; filters, positions and records of all stores."""
