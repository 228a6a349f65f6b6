"""The program of a server, and the skip of tests whose server is missing. pytest is imported only for the skip."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NoReturn

required = False  # --require-services


class Missing(Exception):
    """A server is not available; the text is the reason."""


@dataclass(frozen=True)
class Program:
    """Its path, and the libraries it needs in addition to those of the machine."""

    path: str
    libraries: str = ""

    @property
    def environment(self) -> dict[str, str]:
        if not self.libraries:
            return dict(os.environ)
        others = os.environ.get("LD_LIBRARY_PATH")
        return {**os.environ, "LD_LIBRARY_PATH": f"{self.libraries}:{others}" if others else self.libraries}


def give_up(reason: object) -> NoReturn:
    """Skips the test with a reason; in CI it fails."""
    import pytest

    if required:
        pytest.fail(f"--require-services: {reason}")
    pytest.skip(str(reason))
