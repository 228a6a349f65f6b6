"""CPU-bound work: the scheduler and its tasks run in separate processes.

python examples/process_mode.py
"""

from __future__ import annotations

import os

from onthedot import App

app = App("primes", store="memory://", max_workers=2)

app.start(auto=True, threading=False)


@app.task
def count_primes(below: int) -> int:
    sieve = bytearray([1]) * below
    for number in range(2, int(below**0.5) + 1):
        sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve) - 2


@app.task
def where() -> int:
    return os.getpid()


if __name__ == "__main__":
    handles = [count_primes.delay(below) for below in (10_000, 100_000, 1_000_000)]
    for handle in handles:
        print("primes:", handle.result(timeout=30), flush=True)
    print("in another process:", where.delay().result(timeout=30) != os.getpid(), flush=True)
    app.shutdown()
