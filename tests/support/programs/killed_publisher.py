"""Inserts a row of the user and publishes an event in one transaction, and kills itself before or after the commit.

killed_publisher.py STORE DATABASE TOPIC NUMBER before|after
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from onthedot import App
from onthedot.events import Event, Events
from tests.faults.events.relay_processes import APP
from tests.support.sync_callers import by_driver

STORE, DATABASE, TOPIC, NUMBER, POINT = sys.argv[1:]

app: App[Any] = App(APP, store=STORE, events=Events(topics={"Shop.Order.*": TOPIC}))
event = Event("Shop.Order.Placed", int(NUMBER), aggregate_id="k", id=f"e{NUMBER}")

with by_driver(DATABASE) as caller:
    caller.run(f"INSERT INTO sale VALUES ({int(NUMBER)})")
    app.sync.publish(event, connection=caller.connection)
    if POINT == "after":
        caller.commit()
    os.kill(os.getpid(), signal.SIGKILL)
