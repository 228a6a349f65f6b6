"""The command line: ``onthedot``, and ``python -m onthedot``."""

import signal

_usual = signal.getsignal(signal.SIGINT)
if _usual is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl+C during our imports is an end, and no stack trace

from onthedot.cli import main  # noqa: E402 - see above

signal.signal(signal.SIGINT, _usual)

if __name__ == "__main__":
    main(prog_name="onthedot")
