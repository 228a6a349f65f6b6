"""A server's program; and what happens to a test whose server cannot be had. No pytest unless it comes to that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NoReturn

required = False  # --require-services


class Missing(Exception):
    """There is no such server here, and this is why."""


@dataclass(frozen=True)
class Program:
    """Where it is, and the libraries it needs besides those of the machine."""

    path: str
    libraries: str = ""

    @property
    def environment(self) -> dict[str, str]:
        if not self.libraries:
            return dict(os.environ)
        others = os.environ.get("LD_LIBRARY_PATH")
        return {**os.environ, "LD_LIBRARY_PATH": f"{self.libraries}:{others}" if others else self.libraries}


def give_up(why: object) -> NoReturn:
    """A skip that says why; in CI a failure."""
    import pytest

    if required:
        pytest.fail(f"--require-services: {why}")
    pytest.skip(str(why))
