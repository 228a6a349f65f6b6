"""The steps of the tutorial, run one after the other in one folder: real processes, a SQLite file and a Valkey."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents.blocks import TUTORIAL, read_blocks
from tests.support.documents.page_run import PageRun
from tests.support.services import valkey

STEPS = ("first-task", "schedules", "retries", "flows", "processes", "events", "redis")


@pytest.mark.once
@pytest.mark.timeout(300)
def test_tutorial_does_what_it_shows(tmp_path: Path) -> None:
    with valkey.server() as server, PageRun(tmp_path, {"redis://localhost:6379": server.url}) as run:
        for step in STEPS:
            for block in read_blocks(TUTORIAL / f"{step}.md"):
                run.run(block)


def test_every_page_of_the_tutorial_is_run() -> None:
    assert {page.stem for page in TUTORIAL.glob("*.md")} == {*STEPS, "index"}
