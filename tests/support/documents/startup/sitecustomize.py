"""Run by every program of a page: it writes whole lines at once, as at a terminal.

PYTHONUNBUFFERED=1 would write a line and its end in two steps, and a line of the log may come between.
"""

import sys

for _stream in (sys.stdout, sys.stderr):
    _stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
