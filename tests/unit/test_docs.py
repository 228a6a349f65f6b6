"""Files, links and pages that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.source_files import ROOT, SOURCE

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FILE = re.compile(r"`((?:[\w.<>*-]+/)+(?:[\w*-]+\.(?:py|lua|sql|md|toml))?)`")
PACKAGES = {path.name for path in SOURCE.iterdir() if path.is_dir()}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)", re.MULTILINE)
INSTALL = re.compile(r"^.*pip install\s+'?onthedot\[[\w,]+\](?! @).*$", re.MULTILINE)
FROM_A_CHECKOUT = "tutorial/first-task.md#install"
NAVIGATION = re.compile(r"^ +- .*: ([\w/-]+\.md)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def exists(name: str) -> bool:
    folder = SOURCE if first_part(name) in PACKAGES else ROOT
    return any(folder.glob(name.rstrip("/")))


def first_part(name: str) -> str:
    return name.partition("/")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    names = FILE.findall(page.read_text("utf-8"))
    of_the_repository = PACKAGES | {path.name for path in ROOT.iterdir()}
    names = [name for name in names if first_part(name) in of_the_repository and "<" not in name]
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    broken: list[str] = []
    for link in LINK.findall(page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        name, _, fragment = link.partition("#")
        target = page.parent / (name or page.name)
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_pages_whose_install_command_needs_a_release_link_to_the_one_that_works_before(page: Path) -> None:
    text = page.read_text("utf-8")
    commands = [line for line in INSTALL.findall(text) if "after the" not in line.lower()]
    assert not commands or FROM_A_CHECKOUT in text, commands


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_tables_have_no_escaped_pipe_in_code(page: Path) -> None:
    r"""The site shows \| in code as it is written; only GitHub leaves the backslash out."""
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    assert [row for row in rows if re.search(r"`[^`]*\\\|[^`]*`", row)] == []


def test_table_of_packages_has_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text[text.index("## Packages") : text.index("## The store contract")]
    named = set(re.findall(r"`([\w.]+)/?`", table))
    modules = {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    packages = {name for name in PACKAGES if not name.startswith("__")}
    assert (packages | modules) - named == set()


def test_lists_of_files_to_change_name_files_that_exist() -> None:
    """A path begins at the root, at the package, at the sources of the page, or at the store of its line."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    lists = text[text.index("## Where do I change") : text.index("## Tests")]
    named = set(re.findall(r"`([\w./-]+\.(?:py|sql|lua|tsx?|md|json|toml|css|yml))`", lists))
    bases = [ROOT, SOURCE, ROOT / "page" / "src", SOURCE / "stores" / "redis", SOURCE / "stores" / "postgres"]
    paths = {path for path in named if "/" in path}
    assert [path for path in sorted(paths) if not any((base / path).is_file() for base in bases)] == []
    names = {path.name for path in [*ROOT.glob("*.*"), *SOURCE.rglob("*.*"), *bases[2].rglob("*.*")]}
    assert named - paths - names == set()


def test_navigation_has_every_page_once() -> None:
    """The decisions are listed on a page of their own."""
    listed = NAVIGATION.findall((ROOT / "mkdocs.yml").read_text("utf-8"))
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if not re.match(r"adr/[0-9]", page))
