"""The callback service alone, which kills itself after each of its steps, once per handle. As a program: one process.

The environment variables STORE, BUS, APP, TOPIC and RUN_LOG name where all of it is. A file beside RUN_LOG remembers
each kill: its suffix is the step and the correlation id or the name of the signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onthedot import App
from onthedot.events import CallbackService, Events
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import Arrival, HandleRecord, NewSignal
from tests.acceptance.row_e.event_systems import CREATED, FAILED
from tests.faults.worker_processes import run_forked

STEPS = ("arrived", "completed", "signalled")


def kill_once(step: str, names: Sequence[str]) -> None:
    """After a step, unless it was done before for all of these handles."""
    for name in names:
        memory = Path(os.environ["RUN_LOG"]).with_suffix(f".{step}.{name.replace(':', '-')}")
        if not memory.exists():
            memory.touch()
            os.kill(os.getpid(), signal.SIGKILL)


async def serve() -> None:
    events = Events(bus=os.environ["BUS"], topics={"Genesis.Session.*": os.environ["TOPIC"]}, results=(CREATED, FAILED))
    app: App[Any] = App(os.environ["APP"], store=os.environ["STORE"], events=events)
    store: Any = app.runtime.outbox_store
    outbox = capability(store, Outbox, "serve()")
    record_arrivals = outbox.record_arrivals
    complete_handles = outbox.complete_handles
    send = store.signal

    async def record_and_die(arrivals: Sequence[Arrival]) -> None:
        await record_arrivals(arrivals)
        kill_once("arrived", [each.correlation_id for each in arrivals])

    async def complete_and_die(ids: Sequence[str], resumed: Sequence[str] = ()) -> Sequence[HandleRecord]:
        handles = await complete_handles(ids, resumed)
        kill_once("completed", [each.correlation_id for each in handles])
        return handles

    async def signal_and_die(signals: Sequence[NewSignal]) -> Sequence[bool]:
        sent: Sequence[bool] = await send(signals)
        kill_once("signalled", [each.name for each in signals])
        return sent

    store.record_arrivals = record_and_die
    store.complete_handles = complete_and_die
    store.signal = signal_and_die
    await CallbackService(app).run()


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), lambda: asyncio.run(serve()))
