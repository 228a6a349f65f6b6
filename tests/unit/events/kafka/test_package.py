"""Without the package aiokafka, the error names the extra that brings it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["aiokafka"] = None
from onthedot.errors import StoreRefused
import onthedot.events
try:
    import onthedot.events.kafka
except StoreRefused as error:
    print(error)
"""


def test_missing_package_is_named_with_its_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "kafka:// needs the package aiokafka: pip install 'onthedot[kafka]'\n"
