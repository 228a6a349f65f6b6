"""Makes Markdown of docstrings, for the pages of the reference.

Doctests and literal blocks (``::``) become code: in Markdown, ``>>>`` begins three block quotes. A name in backticks
becomes a link if the reference has it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?m)^( *)>>> .*\n(?:\1(?! *$).*\n?)*")
_LITERAL = re.compile(r"(?m)^( *)::\n\n((?:\1    .*\n?|\n)+)")
_NAME = re.compile(r"(?<!`)`([A-Z]\w+)`(?!`)")
_PAGES = Path(__file__).parents[1].rglob("*.md")
_PATHS = {
    path.rpartition(".")[2]: path
    for page in _PAGES
    for path in re.findall(r"(?m)^::: ([\w.]+)$", page.read_text("utf-8"))
}


_OF_THE_LIBRARY = {"definition", "portal", "run", "runtime", "test"}  # parameters that no user passes


class Docstrings(griffe.Extension):
    """Changes docstrings before they are parsed, and hides constructors that are not for users."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value)
        obj.labels -= {"class-attribute", "instance-attribute"}

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        made = cls.members.get("__init__")
        if isinstance(made, griffe.Function) and _OF_THE_LIBRARY & {parameter.name for parameter in made.parameters}:
            cls.del_member("__init__")


def _markdown(text: str) -> str:
    text = _NAME.sub(_link, f"{text}\n")
    text = _LITERAL.sub(_literal, text)
    return _DOCTEST.sub(_doctest, text).rstrip()


def _link(found: re.Match[str]) -> str:
    path = _PATHS.get(found[1])
    return found[0] if path is None else f"[{found[0]}][{path}]"


def _literal(found: re.Match[str]) -> str:
    code = re.sub(r"(?m)^ {4}", "", found[2].rstrip())
    return f"{found[1]}```python\n{code}\n{found[1]}```\n"


def _doctest(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```\n"
