"""Soak run: steady load for hours, while memory, descriptors, threads, keys, rows and WAL are sampled."""
