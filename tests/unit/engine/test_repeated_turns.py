"""A turn whose reply was lost is repeated under its number, with the outcomes that have arrived since."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onthedot import App
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, Outcome, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import until


class ForgetfulNetwork(MemoryStore):
    """Loses the reply of one claim; keeps the uuids and the verdicts of every request, by its number."""

    loses_reply = False

    def __init__(self, app: App) -> None:
        super().__init__(app.runtime.clock)
        self.requests: list[tuple[int, dict[str, str]]] = []

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        turn = await super().turn(session, outcomes, request)
        if request is not None:
            uuids = [outcome.lease.uuid for outcome in outcomes]
            self.requests.append((request.number, dict(zip(uuids, turn.verdicts, strict=True))))
            if self.loses_reply:
                self.loses_reply = False
                raise StoreUnavailable("the reply is lost")
        return turn


async def test_outcomes_of_a_repeated_request_are_sent_with_the_next_number_again() -> None:
    """A store may go back to a state that knows the number of the request, but not the later outcomes."""
    app = App("shop", store="memory://", stop_timeout=0)
    store = ForgetfulNetwork(app)
    app.runtime.use_store(store)
    go_on = {"first": asyncio.Event(), "second": asyncio.Event()}

    @app.task
    async def wait(name: str) -> None:
        await go_on[name].wait()

    async with app.running():
        handles = {name: await wait.enqueue(name) for name in go_on}
        worker = app.runtime.worker
        assert worker is not None
        await until(lambda: len(worker.runs) == 2)
        store.loses_reply = True
        go_on["first"].set()
        await until(lambda: not store.loses_reply)
        go_on["second"].set()  # it arrives before the request is repeated
        await asyncio.gather(*handles.values())
        await until(worker.is_drained)
    first, second = (handles[name].uuid for name in go_on)
    number = next(number for number, verdicts in store.requests if first in verdicts)
    repeated, following = [verdicts for sent, verdicts in store.requests if sent in (number, number + 1)][1:3]
    assert repeated == {first: "repeat", second: "ok"}
    assert following == {first: "repeat", second: "repeat"}
