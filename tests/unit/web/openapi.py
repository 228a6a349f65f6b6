"""Writes `docs/openapi.json`: ``python -m tests.unit.web.openapi``."""

from __future__ import annotations

import json
from pathlib import Path

from onthedot.web.openapi import openapi
from onthedot.web.routes import ROUTES

FILE = Path(__file__).parents[3] / "docs" / "openapi.json"


def text() -> str:
    return json.dumps(openapi(ROUTES, "1"), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
