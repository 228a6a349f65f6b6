"""Fault tests on real stores. They are short by default; ``ONTHEDOT_FAULTS=long`` runs them in full."""

from __future__ import annotations

import os

LONG = os.environ.get("ONTHEDOT_FAULTS") == "long"


def scaled(short: int, long: int) -> int:
    return long if LONG else short
