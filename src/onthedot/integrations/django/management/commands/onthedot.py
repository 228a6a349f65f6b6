"""``manage.py onthedot worker|dev|web|…``: the command line of onthedot, with the app of TASKS."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.management.base import BaseCommand, CommandParser, SystemCheckError, handle_default_options

from onthedot.cli import main
from onthedot.cli.options import GlobalOptions

_APP = "onthedot.integrations.django.worker_app"
_RUNS_TASKS = ("worker", "dev")

if TYPE_CHECKING:

    class _BaseCommand:
        stderr: Any

        def check(self) -> None: ...
else:
    _BaseCommand = BaseCommand


class Words(NamedTuple):
    """The words after ``manage.py onthedot``, without Django's own options."""

    words: list[str]
    alias: str


class Command(_BaseCommand):
    """Passes its words to the command line of onthedot."""

    help = "The command line of onthedot: worker, dev, web, task list, … (--help shows all)."
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Called by Django.

        argv: such as ``["manage.py", "onthedot", "worker", "--processes", "2"]``
        """
        given = _words(argv[2:])
        if given.words[:1] and given.words[0] in _RUNS_TASKS:
            self._check()
        _share_path()
        main(given.words, prog_name=_name(argv[0]), obj=GlobalOptions(module=f"{_APP}:{given.alias}"))

    def print_help(self, prog_name: str, subcommand: str) -> None:  # noqa: ARG002 - Django's signature
        """For ``manage.py help onthedot``."""
        main(["--help"], prog_name=_name(prog_name), obj=GlobalOptions())

    def _check(self) -> None:
        try:
            self.check()
        except SystemCheckError as error:
            self.stderr.write(str(error))
            sys.exit(1)


def _words(words: list[str]) -> Words:
    parser = CommandParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    parser.add_argument("--alias", default="default")
    known, others = parser.parse_known_args(words)
    handle_default_options(known)
    return Words(others, known.alias)


def _name(program: str) -> str:
    return f"{Path(program).name} onthedot"


def _share_path() -> None:
    """Worker processes find the settings where this process does: in the folder of manage.py.

    Folders that an interpreter has by itself are left out, unless PYTHONPATH had them.
    """
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    installed = _installed_folders()
    known = [Path(each or ".").absolute() for each in sys.path]
    own = [str(each) for each in known if each not in installed]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*own, *given]))


def _installed_folders() -> set[Path]:
    """Of the standard library and of packages. A project may be below the same prefix, as /usr/src/app is."""
    library = Path(sysconfig.get_path("stdlib"))
    archive = library.parent / f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    packages = site.getsitepackages([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix])
    packages.append(site.getusersitepackages())
    return {library, library / "lib-dynload", archive, *[Path(each).absolute() for each in packages]}
