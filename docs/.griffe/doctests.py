"""Shows the doctests and the literal blocks (``::``) of docstrings as code on the pages of the reference.

mkdocstrings reads Markdown, in which ``>>>`` begins three block quotes.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?m)^( *)>>> .*\n(?:\1(?! *$).*\n?)*")
_LITERAL = re.compile(r"(?m)^( *)::\n\n((?:\1    .*\n?|\n)+)")


class Doctests(griffe.Extension):
    """Puts fences around them, before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _fenced(obj.docstring.value)


def _fenced(text: str) -> str:
    text = _LITERAL.sub(_literal, f"{text}\n")
    return _DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0].rstrip()}\n{found[1]}```\n", text).rstrip()


def _literal(found: re.Match[str]) -> str:
    code = re.sub(r"(?m)^ {4}", "", found[2].rstrip())
    return f"{found[1]}```python\n{code}\n{found[1]}```\n"
