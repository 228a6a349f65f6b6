"""Every code block of the README and the docs is run, or says why not. CONTRIBUTING.md has the rules."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.documents.blocks import PAGES, TUTORIAL, Block, read_blocks
from tests.support.documents.page_run import PageRun
from tests.support.services import kafka_protocol, valkey
from tests.support.services.kafka import KafkaService
from tests.support.services.ports import free_port
from tests.support.services.postgres import Service
from tests.support.source_files import ROOT

REDIS = "redis://localhost:6379"
POSTGRES = "postgresql://localhost/shop"
KAFKA = "localhost:9092"
POSTGRES_OF_SQLALCHEMY = "postgresql+asyncpg://localhost/shop"
PORT = re.compile(r"\b832[0-9]\b")
READERS = {"json": json.loads, "toml": tomllib.loads}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def unchecked(page: Path) -> Iterator[str]:
    for block in read_blocks(page):
        if block.language in READERS:
            READERS[block.language](block.text)
        elif not block.runs and not block.is_output and "not run" not in block.marks:
            yield f"{block.name}: a block of {block.language or 'no language'}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    assert list(unchecked(page)) == [], "write <!-- not run: the reason --> before it"


def pages_to_run() -> list[Path]:
    """Without the tutorial, whose pages are run together: tests/acceptance/test_tutorial.py."""
    pages = [page for page in PAGES if not page.is_relative_to(TUTORIAL)]
    return [page for page in pages if any(block.runs for block in read_blocks(page))]


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", pages_to_run(), ids=name_of)
def test_blocks_of_a_page_do_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    blocks = read_blocks(page)
    with PageRun(tmp_path, servers_of(blocks, request)) as run:
        for block in blocks:
            run.run(block)


def servers_of(blocks: list[Block], request: pytest.FixtureRequest) -> dict[str, str]:
    """Real servers for the URLs that the blocks name; what the page stores there is deleted at the end."""
    text = "".join(block.text for block in blocks if block.runs or block.file is not None)
    apps = set(re.findall(r'\bApp\("([\w-]+)"', text))
    servers: dict[str, str] = {}
    if REDIS in text:
        servers[REDIS] = valkey.url()
        request.addfinalizer(lambda: [valkey.forget(f"onthedot:{{{app}}}:") for app in apps])
    if POSTGRES in text:
        service: Service = request.getfixturevalue("postgres")
        stack = ExitStack()
        request.addfinalizer(stack.close)
        url = stack.enter_context(service.database())
        for shown in (POSTGRES, POSTGRES_OF_SQLALCHEMY):
            servers[shown] = f"{shown.partition(':')[0]}:{url.partition(':')[2]}"
    if KAFKA in text:
        kafka: KafkaService = request.getfixturevalue("kafka_service")
        servers[KAFKA] = kafka.address
        before = kafka_protocol.topics(kafka.address)
        request.addfinalizer(lambda: kafka.delete_others(before))
    for port in PORT.findall(text):
        servers[port] = str(free_port())
    return servers


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=name_of)
def test_code_fits_the_width_of_a_page(page: Path) -> None:
    """No reader has to scroll sideways: `docs/site.css` makes room for a hundred columns."""
    blocks = [block for block in read_blocks(page) if block.language == "python"]
    assert [line for block in blocks for line in block.text.splitlines() if len(line) > 100] == []
