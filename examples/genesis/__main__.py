"""Starts the example: page, API, worker, relay, agents and callback service in one process, or in several."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from examples.genesis.servers import add_options, servers

HOST = "127.0.0.1"
INSTALL = "pip install -e '.[web]' fastapi"  # all that it imports beside onthedot


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis", description=__doc__)
    parser.add_argument("--port", type=int, default=8006, help="of the page (8006)")
    parser.add_argument(
        "--processes", type=int, default=1, help="that run tasks and agents; above 1 beside the one of the page (1)"
    )
    add_options(parser)
    options = parser.parse_args()
    with servers(options), workers(options.processes):
        return serve(options.port)


@contextmanager
def workers(number: int) -> Iterator[None]:
    """Worker processes under one supervisor, which replaces those that die. 1: the process of the page works."""
    if number <= 1:
        yield
        return
    from tests.support.process_guard import start_guarded

    os.environ["GENESIS_WORKERS"] = str(number)
    command = [sys.executable, "-m", "onthedot", "worker", "examples.genesis.app:app", "--log-level", "warning"]
    supervisor = start_guarded([*command, "--processes", str(number)])  # ends also if this process is killed
    print(f"Workers   {number} processes below process {supervisor.pid}", flush=True)
    try:
        yield
    finally:
        supervisor.terminate()
        supervisor.wait()


def serve(port: int) -> int:
    """Until Ctrl+C."""
    try:
        import uvicorn

        from examples.genesis.api import api
    except ImportError as error:
        sys.stderr.write(f"{error}: {INSTALL}\n")
        return 1
    print(f"http://{HOST}:{port}/", flush=True)
    uvicorn.run(api, host=HOST, port=port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
