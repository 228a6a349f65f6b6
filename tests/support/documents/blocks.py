"""The code blocks of a page, with the comments that say how to treat them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from tests.support.source_files import ROOT

TUTORIAL = ROOT / "docs" / "tutorial"
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])

_PART = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$|<!--(?P<comment>.*?)-->",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"\s*(not run|exit code|output varies): *(\S.*?)\s*", re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.py)\n")
_PROGRAM = re.compile(r"^(if __name__ ==|asyncio\.run\()", re.MULTILINE)


@dataclass
class Block:
    """A code block. marks: what a comment before it says, by the kind of the mark."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict[str, str])
    output: str | None = None  # the block `text` that follows it
    is_output: bool = False
    is_setup: bool = False  # of a comment: readers do not see it

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of a program, from its first line: ``# app.py``."""
        found = _FILE.match(self.text)
        return None if found is None else found[1]

    @property
    def is_program(self) -> bool:
        return self.file is not None or _PROGRAM.search(self.text) is not None

    @property
    def runs(self) -> bool:
        return self.language in ("python", "console") and "not run" not in self.marks


def read_blocks(page: Path) -> list[Block]:
    """The blocks in order, with the setup that comments contain."""
    blocks: list[Block] = []
    for block in _parts(page):
        last = blocks[-1] if blocks else None
        if block.language == "text" and not block.marks and last is not None and last.language == "python":
            block.is_output = True
            last.output = block.text
        blocks.append(block)
    return blocks


def _parts(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    marks: dict[str, str] = {}
    end = 0
    for part in _PART.finditer(text):
        if text[end : part.start()].strip():
            marks = {}
        end = part.end()
        line = text.count("\n", 0, part.start()) + 1
        comment = part["comment"]
        if comment is None:
            yield Block(page, line, part["language"], dedent(part["text"]), marks)
            marks = {}
        elif mark := _MARK.fullmatch(comment):
            marks[mark[1]] = mark[2]
        elif comment.lstrip().startswith("setup\n"):
            code = dedent(comment.lstrip().removeprefix("setup\n"))
            yield Block(page, line, "python", code, is_setup=True)
