"""The reference has every command with every option."""

from __future__ import annotations

from tests.unit.cli.reference import PAGE, page


def test_reference_of_commands_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "`python -m tests.unit.cli.reference` writes it"
