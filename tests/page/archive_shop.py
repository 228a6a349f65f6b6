"""A later release of the app of `held_shop`: it knows a source that the former one does not know.

ONTHEDOT_STORE=sqlite:///held.db onthedot worker tests/page/archive_shop.py
"""

from __future__ import annotations

from onthedot import App

app = App("held")


@app.task
async def archive(number: int) -> int:
    return number
