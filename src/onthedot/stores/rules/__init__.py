"""The rules of the contract in Python, for the memory and SQLite stores."""
