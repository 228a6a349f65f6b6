from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import shop
from tests.faults.grounds import GROUNDS, Ground
from tests.faults.ledger import Ledger


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """A fresh file, and the shop's functions adding to it."""
    url = f"sqlite:///{tmp_path}/shop.db"
    with shop.app.override(store=url):
        yield url


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A store that many machines share; which one is a parameter."""
    with GROUNDS[request.param]() as ground:
        yield ground


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    book = Ledger(tmp_path / "ledger")
    yield book
    book.close()


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"
