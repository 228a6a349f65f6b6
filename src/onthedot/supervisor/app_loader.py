"""Import the user's app: ``module:app``, ``module``, ``app.py`` or ``path/app.py:app``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onthedot.errors import shortened_list
from onthedot.supervisor.exit_codes import CommandError

if TYPE_CHECKING:
    from onthedot import App  # imported at run time only where user code is loaded: a supervisor does without it

_OWN_FRAMES = (str(Path(__file__).parents[1]), "<frozen importlib")
_IMPORTLIB = os.sep + "importlib" + os.sep


def load_app(spec: str) -> App[Any]:
    """Return the app that `spec` names. The error names what was looked for and what is there instead."""
    from onthedot.api.app import App, open_apps

    place, _, attribute = spec.partition(":")
    folder, name = module_location(place)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _import(name, place, folder)
    apps: dict[str, App[Any]] = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if not attribute:
        return _only_app(apps, place)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    app = next((app for app in open_apps if app is found), None)
    if app is not None:
        return app
    problem = "has no" if found is None else "has no App in"
    raise CommandError(f"{place} {problem} {attribute!r}; {_list_apps(apps, place)}")


def load_app_and_included(spec: str) -> App[Any]:
    """Return the app that `spec` names, with the tasks and schedules of its ``include``."""
    app = load_app(spec)
    import_included(app)
    return app


def import_included(app: App[Any]) -> None:
    """Import the modules of ``include``; one that cannot be imported is named, as the module of the app is."""
    for module in app.runtime.config.include:
        _import(module, module, Path.cwd())


def module_location(place: str) -> tuple[Path, str]:
    """Return the folder for ``sys.path`` and the dotted module name. A file in a package is imported as part of it."""
    if not place.endswith(".py") and os.sep not in place:
        return Path.cwd(), place
    file = Path(place).resolve()
    if file.is_dir() or not file.exists():
        raise CommandError(f"there is no file {file}; {list_modules(file.parent)}")
    folder = file.parent
    parts = [file.stem]
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts).removesuffix(".__init__")


def _import(name: str, place: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise CommandError(_import_failure(place, error)) from None
        message = f"there is no module {error.name!r} in {folder}, nor installed; {list_modules(folder)}"
        raise CommandError(message) from None
    except SyntaxError as error:
        raise CommandError(f"{error.filename}:{error.lineno}: {error.msg}: {(error.text or '').strip()}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything while it is imported
        raise CommandError(_import_failure(place, error)) from None


def _import_failure(place: str, error: BaseException) -> str:
    """With the frames of the user's code, and none of ours."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OWN_FRAMES) and _IMPORTLIB not in frame.filename
    ]
    shown = "".join(traceback.format_list(frames)).rstrip()
    last = traceback.format_exception_only(error)[-1].strip()
    return f"{place} cannot be imported: {last}\n{shown}".rstrip()


def _only_app(apps: dict[str, App[Any]], place: str) -> App[Any]:
    different = {id(app): app for app in apps.values()}
    if len(different) == 1:
        return next(iter(different.values()))
    if "app" in apps:
        return apps["app"]
    if not apps:
        raise CommandError(_list_apps(apps, place))
    raise CommandError(f"which app? {_list_apps(apps, place)}")


def _list_apps(apps: dict[str, App[Any]], place: str) -> str:
    if apps:
        return "there are " + ", ".join(f"{place}:{name}" for name in apps)
    return f"{place} has no App; write `app = App(…)` in it"


def list_modules(folder: Path) -> str:
    """The end of a message about a wrong or missing name of a file."""
    if not folder.is_dir():
        return f"and no folder {folder}"
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    packages = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    if not files and not packages:
        return "there is no Python file here"
    return f"here is {shortened_list(sorted(files + packages))}"
