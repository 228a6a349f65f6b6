"""Runs the snippets of a page in one process and one namespace, as a reader would in one session.

A program that reads lines of JSON, ``{"name": …, "code": …}``, and prints the end mark after each snippet. A snippet
may await: the session has one event loop.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import linecache
import sys
import traceback
from types import CodeType
from typing import Any

END = "-- end of the snippet --"


def run(code: CodeType, runner: asyncio.Runner, namespace: dict[str, Any]) -> None:
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, namespace)
        return

    async def awaited() -> None:
        await eval(code, namespace)

    runner.run(awaited())


def main() -> None:
    namespace: dict[str, Any] = {"__name__": "snippets"}
    sys.modules["snippets"] = type(sys)("snippets")
    sys.modules["snippets"].__dict__.update(namespace)
    namespace = sys.modules["snippets"].__dict__
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            request = json.loads(line)
            code = request["code"]
            linecache.cache[request["name"]] = (len(code), None, code.splitlines(keepends=True), request["name"])
            failed = False
            try:
                compiled = compile(code, request["name"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                run(compiled, runner, namespace)
            except BaseException:
                failed = True
                traceback.print_exc(file=sys.stdout)
            print(f"{END} {'failed' if failed else 'passed'}", flush=True)


if __name__ == "__main__":
    main()
