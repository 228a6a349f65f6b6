"""The one table of what stores do differently says what they do."""

from __future__ import annotations

import pytest

from tests.support.services import valkey
from tests.support.services.postgres import Service
from tests.unit.stores.differences import APP, KINDS, ROWS, documented, observed


@pytest.mark.parametrize("kind", KINDS)
async def test_the_documentation_says_what_a_store_does(request: pytest.FixtureRequest, kind: str) -> None:
    if kind == "redis":
        seen = await observed(kind, valkey.url())
        valkey.forget(f"onthedot:{{{APP}}}:")
    elif kind == "postgresql":
        service: Service = request.getfixturevalue("postgres")
        seen = await observed(kind, service.url)
        service.clean(APP)
    else:
        seen = await observed(kind)
    assert documented()[kind] == seen, "`python -m tests.unit.stores.differences` prints the table"


def test_it_has_no_row_that_nothing_looks_at() -> None:
    assert all(list(column) == list(ROWS) for column in documented().values())
