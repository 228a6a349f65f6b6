"""One batch, while each part of the system is killed in turn: exits with 1 unless every item is there once.

python -m examples.genesis.chaos [--count 50] [--kafka --postgres]

Four processes share the work: the dispatcher runs parts and batches, the relay sends events, the agents call the model,
the callback service wakes waiting parts. Each is killed by SIGKILL when it has work, and started again at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from examples.genesis.servers import add_options, servers
from tests.support.process_guard import kill_tree, start_guarded

ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds; a session of a killed process on Postgres ends with its lease
WORKER = ("worker", "examples.genesis.app:app", "--log-level", "warning")
PROCESSES = {
    "dispatcher": (*WORKER, "--only", "genesis.*", "--without", "relay,agents,callback"),
    "agents": (*WORKER, "--only", "agent.*", "--without", "relay,callback"),
    "callback service": (*WORKER, "--only", "genesis.one_call", "--without", "relay,agents"),
    "relay": ("outbox", "relay", "-A", "examples.genesis.app:app", "--log-level", "warning"),
}
MODEL = {"seconds": [0.5, 1.0], "limited": 0, "slow": 0, "poisoned": 0}


class Process:
    """One process of the system, with its children."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start()

    def start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "GENESIS_FAKE": json.dumps(MODEL),
        }
        command = [sys.executable, "-m", "onthedot", *PROCESSES[self.name]]
        self._process = start_guarded(command, env=environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """By SIGKILL: the supervisor and the process that works."""
        kill_tree(self._process.pid)
        self._process.wait()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the {self.name} has ended with code {self._process.returncode}")


class Chaos:
    """The batch, and the kills."""

    def __init__(self, count: int) -> None:
        from examples.genesis.app import app, detail_part

        self.app = app
        self.part = detail_part
        self.count = count
        self.problems: list[str] = []
        self.processes: dict[str, Process] = {}
        self._began = time.monotonic()

    async def run(self) -> bool:
        with ExitStack() as stack:
            async with self.app:
                for name in PROCESSES:
                    self.processes[name] = Process(name)
                    stack.callback(self.processes[name].kill)
                    await self._until(self._is_alive(len(self.processes)))
                await self._kill_in_turn()
        for problem in self.problems:
            self._print(f"WRONG: {problem}")
        return not self.problems

    def _is_alive(self, number: int) -> Callable[[], Awaitable[bool]]:
        """Workers are counted by their sessions; the relay by its own."""

        async def is_alive() -> bool:
            workers = len(await self.app.operations.workers())
            if number < len(PROCESSES):
                return workers == number
            return bool((await self.app.operations.outbox.status()).relays)

        return is_alive

    async def _kill_in_turn(self) -> None:
        batch = await self.app.batch(
            self.part,
            count=self.count,
            type="skill",
            args={"session_id": "s-1", "style": {}},
            metadata={"command_id": "chaos"},
        )
        moments: list[tuple[str, str, Callable[[], Awaitable[int]]]] = [
            ("dispatcher", "parts exist", lambda: self._tasks(self.part.name)),
            ("relay", "requests are in the outbox", lambda: self._events("genesis.requests")),
            ("agents", "an agent has requests", self._agent_tasks),
            ("callback service", "answers are in the outbox", lambda: self._events("genesis.results")),
        ]
        for name, reason, count in moments:
            await self._until(count)
            if (await batch.progress()).items == self.count:
                self.problems.append(f"the batch ended before the {name} was killed")
            self.processes[name].kill()
            self._print(f"killed the {name}: {reason}")
            self.processes[name].start()
        async with asyncio.timeout(PATIENCE):
            result = await batch.all()
            parts = [part async for part in batch.parts()]
        self._print(f"{len(result.items)} items in {len(parts)} parts")
        names = {item.name for item in result.items}
        self._expect("distinct items", len(names), self.count)
        self._expect("items of all parts", sum(len(part.items) for part in parts), self.count)
        self._expect("numbers of parts", [part.number for part in parts], [*range(1, len(parts) + 1)])
        self._expect("indexes of parts", sorted(part.index for part in parts), [*range(len(parts))])
        self._expect("requests", await self._events("genesis.requests"), len(parts))
        self._expect("tasks of agents", await self._agent_tasks(), len(parts))
        self._expect("answers", await self._events("genesis.results"), len(parts))

    def _expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.problems.append(f"{what}: {found} instead of {wanted}")

    async def _events(self, topic: str) -> int:
        return len(await self.app.operations.outbox.events(topic=topic, limit=1000))

    async def _tasks(self, source: str) -> int:
        return len(list(await self.app.find(source=source, limit=500)))

    async def _agent_tasks(self) -> int:
        return sum([await self._tasks(f"agent.{agent}") for agent in self.app.agents.ids])

    async def _until(self, condition: Callable[[], Awaitable[object]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                for process in self.processes.values():
                    process.check()
                await asyncio.sleep(0.01)

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis.chaos", description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    add_options(parser)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="genesis-") as folder,
        servers(options, default_store=f"sqlite:///{folder}/genesis.db"),
    ):
        return 0 if asyncio.run(Chaos(options.count).run()) else 1


if __name__ == "__main__":
    sys.exit(main())
