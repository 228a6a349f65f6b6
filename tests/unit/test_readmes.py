"""The README has the same content in English and in Chinese."""

from __future__ import annotations

import re

import pytest

from tests.support.documents.blocks import read_blocks
from tests.support.source_files import ROOT

ENGLISH = ROOT / "README.md"
CHINESE = ROOT / "README.zh-CN.md"
PARTS = {
    "headings": re.compile(r"^(#+) ", re.MULTILINE),
    "links": re.compile(r"\]\((?!README)([^)]+)\)"),
    "names in code": re.compile(r"`([^`\n]+)`"),
    "rows of tables": re.compile(r"^(\|)", re.MULTILINE),
    "items of lists": re.compile(r"^(- )", re.MULTILINE),
}


@pytest.mark.parametrize("part", PARTS)
def test_both_languages_have_the_same(part: str) -> None:
    english, chinese = (sorted(PARTS[part].findall(page.read_text("utf-8"))) for page in (ENGLISH, CHINESE))
    assert english == chinese


def test_both_languages_have_the_same_code() -> None:
    english, chinese = (
        [re.sub(r" *#(?! \w+\.py$).*", "", block.text, flags=re.MULTILINE) for block in read_blocks(page)]
        for page in (ENGLISH, CHINESE)
    )
    assert english == chinese
