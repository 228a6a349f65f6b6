"""A second process on the same file: `python -m tests.unit.stores.sqlite.peer FILE SESSION`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onthedot.stores.contract import ClaimRequest, Completed, Hints, Lease, NewTask, Policy, RelayRequest, SlotPool
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.notifier import DatagramNotifier
from tests.contract.event_steps import event

ROOT = Path(__file__).parents[4]
FOREVER = 10**12


class Peer:
    """The peer as the test sees it."""

    def __init__(self, path: Path, session: str) -> None:
        command = [sys.executable, "-m", "tests.unit.stores.sqlite.peer", str(path), session]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.session = session

    def ask(self, *words: object) -> Any:
        self.say(*words)
        return self.hear()

    def say(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()


@contextmanager
def peers(path: Path, *sessions: str) -> Iterator[list[Peer]]:
    made = [Peer(path, session) for session in sessions]
    try:
        for peer in made:
            assert peer.hear() == "here"
        yield made
    finally:
        for peer in made:
            peer.kill()
            with peer.process:
                pass


def die_instead(_: DatagramNotifier, calls: Sequence[Notifications], *__: Iterable[str]) -> None:
    """After the commit, before the hints are sent."""
    if any(call.woken for call in calls):
        os.kill(os.getpid(), signal.SIGKILL)


async def use_outbox(store: SqliteStore, session: str, hints: Hints, verb: str, ids: list[str]) -> Any:
    match verb:
        case "publish":
            return list(await store.publish([event(event_id=event_id) for event_id in ids]))
        case "relay":  # what it reads stays in flight
            result = await store.relay(session, [], {}, RelayRequest())
            return [list(result.buckets), [stored.event.id for stored in result.events]]
        case _:
            while not (await anext(hints)).events:
                pass
            return None


async def live(path: str, session: str) -> None:
    """The peer process."""
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat(session, b"", FOREVER)
    hints = store.hints(session)
    await anext(hints)
    print(json.dumps("here"), flush=True)
    number = 0
    leases = dict[str, Lease]()
    while line := await asyncio.to_thread(sys.stdin.readline):
        answer: Any = None
        match json.loads(line):
            case ["add", *names]:
                new = [NewTask(name, "a", b"", policy=Policy(reply_to=session)) for name in names]
                answer = [added.fresh for added in await store.add(new)]
            case ["add and die", name]:
                DatagramNotifier.publish = die_instead  # type: ignore[method-assign]
                await store.add([NewTask(name, "a", b"")])
            case ["claim", most]:
                number += 1
                turn = await store.turn(session, [], ClaimRequest(number, [SlotPool(most, {"a": most})]))
                assert turn.claim is not None
                leases |= {r.uuid: Lease(r.uuid, turn.claim.fence, session) for r in turn.claim.tasks}
                answer = [record.uuid for record in turn.claim.tasks]
            case ["done", *names]:
                answer = list((await store.turn(session, [Completed(leases[name]) for name in names], None)).verdicts)
            case ["take over"]:  # waits for a hint, and claims what there is
                while "a" not in (await anext(hints)).sources:
                    pass
                at = time.time()
                number += 1
                turn = await store.turn(session, [], ClaimRequest(number, [SlotPool(9, {"a": 9})]))
                assert turn.claim is not None
                answer = [at, time.time(), [record.uuid for record in turn.claim.tasks]]
            case ["hint"]:
                hint = await anext(hints)
                answer = [sorted(hint.sources), dict(hint.cancel_requests), sorted(hint.ended)]
            case ["publish" | "relay" | "event hint" as verb, *ids]:
                answer = await use_outbox(store, session, hints, verb, ids)
            case ["close"]:
                await hints.aclose()
                await store.close_session(session)
                await store.close()
            case ["cpu"]:
                answer = sum(os.times()[:2])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(live(*sys.argv[1:]))
