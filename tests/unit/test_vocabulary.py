"""Names use the words of `docs/glossary.md`: no metaphors, one meaning per word, one class per name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_files import all_programs, all_tests, nodes, short_name, source_files

METAPHORS = frozenset(
    """
    alike bell besides board burial burials buried bury burying desk door ear ears flock grave graves heard hungry
    ledger mouth nudge nudges ring rung said shepherd shut told tidy unseen whoever whom woke
    """.split()  # noqa: SIM905 -- read as a block
)
OTHER_WORDS = frozenset(
    """
    ack also asked backend beat beats bridge broker canvas core declared handing intake job jobs latch past room rooms
    standing subtask why workflow
    """.split()  # noqa: SIM905 -- read as a block
)
"""Words for which the glossary has another one. Its right column has more, which mean something else elsewhere."""
BANNED = METAPHORS | OTHER_WORDS
PUBLIC_NAMES = [
    ("operations/explain.py", "also has the word 'also'"),
    ("integrations/django/__init__.py", "Backend has the word 'backend'"),
    ("integrations/django/framework.py", "BaseTaskBackend has the word 'backend'"),
]
"""Public names that are older than the list (`Explanation.also`), and those of Django."""

NOUNS_IN_ING_OR_ED = frozenset({"feed", "testing", "untyped"})
COMMANDS = "cli/"
"""Its modules are named after the commands: `onthedot failed`."""
POSITIONAL = re.compile(r"(^|_)(row|answer|reply|line)$")

LUA_NAMES = (
    r"\blocal\s+(?!function\b)([\w, ]+)",
    r"\bfor\s+([\w, ]+)\bin\b",
    r"\bfunction\s+([\w.]+)",
    r"\bfunction\s*[\w.]*\(([^)]*)\)",
)
SQL_NAMES = (
    r"\bCREATE (?:UNLOGGED )?(?:UNIQUE )?(?:TABLE|FUNCTION|INDEX|TYPE)\s+(\w+)",
    # columns and variables
    r"(?:^ +|, *)(\w+) (?:integer|bigint|smallint|double|text|blob|bytea|boolean|json|record)\b",
    r"[(,]\s*(?:OUT )?(_\w+) \w+",  # parameters
)


def words(name: str) -> set[str]:
    """`_lastDueAt_ms` has the words last, due, at and ms."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def python_names(path: Path) -> Iterator[str]:
    """Names that the file defines. Names that it only uses are defined elsewhere, perhaps in another library."""
    for node in nodes(path):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)):
                yield name


def lua_names(path: Path) -> Iterator[str]:
    text = re.sub(r"--.*", "", path.read_text("utf-8"))
    for pattern in LUA_NAMES:
        for listed in re.findall(pattern, text):
            yield from re.findall(r"\w+", listed)


def sql_names(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    yield from re.findall(r"^-- name: (\w+)", text, re.MULTILINE)
    text = re.sub(r"--.*", "", text)
    for pattern in SQL_NAMES:
        yield from re.findall(pattern, text, re.MULTILINE | re.IGNORECASE)


READERS = {".py": python_names, ".lua": lua_names, ".sql": sql_names}


def banned_names() -> Iterator[tuple[str, str]]:
    for path in source_files("py", "lua", "sql"):
        names = {*READERS[path.suffix](path), *path.relative_to(path.parents[1]).with_suffix("").parts}
        for name in names:
            for word in words(name) & BANNED:
                yield short_name(path), f"{name} has the word {word!r}"


def test_names_use_the_words_of_the_glossary() -> None:
    assert [found for found in banned_names() if found not in PUBLIC_NAMES] == []


def test_names_of_tests_are_no_metaphors() -> None:
    """Test names are sentences, so the other words are allowed in them."""
    names = {(short_name(path), name) for path in all_tests() for name in python_names(path)}
    assert sorted(found for found in names if words(found[1]) & METAPHORS) == []


def test_variables_of_tests_are_nouns() -> None:
    names = {(short_name(path), name) for path in all_tests() for name in python_names(path)}
    assert sorted(found for found in names if "asked" in words(found[1]) and not found[1].startswith("test_")) == []


def test_docstrings_name_their_subject_first() -> None:
    opening = re.compile(r'"""(What|Who|Whoever|Whom) ')
    files = [*source_files("py"), *all_tests(), *all_programs()]
    assert [short_name(path) for path in files if opening.search(path.read_text("utf-8"))] == []


def test_no_class_name_is_used_twice() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for path in source_files("py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(short_name(path))
    twice = {name: found for name, found in files.items() if len(found) > 1}
    assert twice == {}


def test_module_names_are_nouns() -> None:
    modules = [short_name(path) for path in source_files("py") if not short_name(path).startswith(COMMANDS)]
    last_words = {module: Path(module).stem.rpartition("_")[2] for module in modules}
    participles = {module: word for module, word in last_words.items() if re.search("(ing|ed)$", word)}
    assert {module: word for module, word in participles.items() if word not in NOUNS_IN_ING_OR_ED} == {}


def positional_rows() -> Iterator[tuple[str, str]]:
    for path in source_files("py"):
        for node in nodes(path):
            match node:
                case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))):
                    if POSITIONAL.search(name):
                        yield short_name(path), f"{node.lineno} {name}[{index}]"


def test_rows_are_read_by_name() -> None:
    assert list(positional_rows()) == []
