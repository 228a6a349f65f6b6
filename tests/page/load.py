"""Work for the shop at a steady rate, from a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.page.checkout import ROOT
from tests.page.conftest import Shop
from tests.support.process_guard import start_guarded

_STEP = 0.2  # seconds
_PER_TASK = 3  # transitions: ready, running, succeeded
_CODE = """
import asyncio, sys, time
from tests.page import gate_shop

async def main(number, step):
    async with gate_shop.app:
        due = time.monotonic()
        while True:
            await gate_shop.nothing.enqueue_many([{}] * number)
            print("added", flush=True)
            due = max(due + step, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
"""


@contextmanager
def loaded(shop: Shop, transitions: int) -> Iterator[None]:
    """So many transitions per second, of an app `gate_shop`."""
    number = str(max(1, round(transitions * _STEP / _PER_TASK)))
    process = start_guarded(
        [sys.executable, "-c", _CODE, number, str(_STEP)], cwd=ROOT, env=shop.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"added\n"
        yield
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
