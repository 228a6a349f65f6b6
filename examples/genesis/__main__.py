"""Starts the example: page, API, worker, relay, agents and callback service in one process."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser

HOST = "127.0.0.1"


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis", description=__doc__)
    parser.add_argument("--port", type=int, default=8006, help="of the page (8006)")
    parser.add_argument("--store", help="URL of the store; by default the file genesis.db in this folder")
    parser.add_argument("--bus", help="URL of the bus, such as kafka://127.0.0.1:9092; by default the store is the bus")
    options = parser.parse_args()
    if options.store:
        os.environ["ONTHEDOT_STORE"] = options.store
    if options.bus:
        os.environ["ONTHEDOT_BUS"] = options.bus
    try:
        import uvicorn

        from examples.genesis.api import api
    except ImportError as error:
        sys.stderr.write(f"{error}: pip install 'onthedot[fastapi]' uvicorn\n")
        return 1
    print(f"http://{HOST}:{options.port}/", flush=True)
    uvicorn.run(api, host=HOST, port=options.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
