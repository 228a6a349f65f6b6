"""The planted defects of `./dev mutants` fit the sources, and the tests that must detect them exist."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT, Mutant, read_table


@pytest.mark.parametrize("mutant", read_table(), ids=lambda mutant: mutant.name)
def test_mutant_fits_the_sources(mutant: Mutant) -> None:
    """If a line has changed, plant the same defect in the new one: tests/mutants/table.toml."""
    for edit in mutant.edit:
        assert (ROOT / edit.file).read_text("utf-8").count(edit.old) == 1, edit
    file, _, rest = mutant.test.split()[0].partition("::")
    assert rest.partition("[")[0] in (ROOT / file).read_text("utf-8")
