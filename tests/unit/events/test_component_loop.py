"""The loop of a component: each failure is reported as one of the store or of the bus, and the component continues."""

from __future__ import annotations

from onthedot.clock.system import SystemClock
from onthedot.errors import StoreUnavailable
from onthedot.events.bus import BusUnreachable
from onthedot.events.component_loop import ComponentLoop
from onthedot.observability.events import Observer
from tests.support.waits import until


class Reports(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def bus_failed(self, operation: str, error: Exception) -> None:
        self.seen.append(f"bus failed: {operation}")

    def bus_recovered(self, operation: str) -> None:
        self.seen.append(f"bus recovered: {operation}")

    def store_failed(self, operation: str, error: BaseException) -> None:
        self.seen.append(f"store failed: {operation}")

    def store_recovered(self, operation: str) -> None:
        self.seen.append(f"store recovered: {operation}")


class Failing(ComponentLoop):
    name = "probe"

    def __init__(self, observer: Observer, *errors: Exception) -> None:
        super().__init__(SystemClock(), observer)
        self._errors = list(errors)
        self.begins = 0

    async def _begin(self) -> None:
        self.begins += 1
        if self.begins == 1:
            raise BusUnreachable("no broker")

    async def _step(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        await self._sleep(None, idle=True)


async def test_failures_are_reported_as_those_of_bus_or_store_and_a_begin_is_repeated() -> None:
    reports = Reports()
    component = Failing(reports, StoreUnavailable("no answer"))
    await component.start()
    await until(component.idle.is_set)
    component.recheck()
    await until(lambda: len(reports.seen) == 4)
    await component.stop()
    assert component.begins == 2
    assert reports.seen == [
        "bus failed: the probe",
        "store failed: the probe",
        "bus recovered: the probe",
        "store recovered: the probe",
    ]
