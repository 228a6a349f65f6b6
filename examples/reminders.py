"""Two weeks of schedules and delayed tasks in a moment: a test turns the clock.

python examples/reminders.py
"""

from __future__ import annotations

from datetime import timedelta

from onthedot import App
from onthedot.testing import TestApp

app = App("reminders", tz="Europe/Berlin")
sent: list[str] = []


@app.task
def remind(name: str) -> None:
    sent.append(f"{name}, your trial ends tomorrow")


@app.schedule("0 9 * * mon")
def newsletter() -> None:
    sent.append("newsletter")


def sign_up(name: str) -> None:
    remind.options(after=timedelta(days=13)).delay(name)


if __name__ == "__main__":
    with TestApp(app) as test:
        print(f"{test.now():%a %d %b}")
        sign_up("ann")
        test.sync.advance(days=12)
        print(f"{test.now():%a %d %b}", sent)
        test.sync.advance(days=2)
        print(f"{test.now():%a %d %b}", sent)
        test.refute_added(remind, name="bob")
