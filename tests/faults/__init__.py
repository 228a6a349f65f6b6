"""Fault runs on real stores: what must never happen, tried. Short here; ``ONTHEDOT_FAULTS=long`` runs them in full."""

from __future__ import annotations

import os

LONG = os.environ.get("ONTHEDOT_FAULTS") == "long"


def scaled(short: int, long: int) -> int:
    return long if LONG else short
