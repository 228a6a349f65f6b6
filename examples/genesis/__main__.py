"""Starts the example: page, API, worker, relay, agents and callback service in one process."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from examples.genesis.servers import add_options, servers

HOST = "127.0.0.1"


def main() -> int:
    parser = ArgumentParser(prog="python -m examples.genesis", description=__doc__)
    parser.add_argument("--port", type=int, default=8006, help="of the page (8006)")
    add_options(parser)
    options = parser.parse_args()
    with servers(options):
        return serve(options.port)


def serve(port: int) -> int:
    """Until Ctrl+C."""
    try:
        import uvicorn

        from examples.genesis.api import api
    except ImportError as error:
        sys.stderr.write(f"{error}: pip install 'onthedot[fastapi]' uvicorn\n")
        return 1
    print(f"http://{HOST}:{port}/", flush=True)
    uvicorn.run(api, host=HOST, port=port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
