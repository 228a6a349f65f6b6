"""Finding the user's app: ``module:app``, ``module``, ``app.py`` or ``path/app.py:app``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onthedot.cli.options import CliError

if TYPE_CHECKING:
    from onthedot import App  # at run time only where user code is loaded: a supervisor does without

_OURS = (str(Path(__file__).parents[1]), "<frozen importlib")
_IMPORTLIB = os.sep + "importlib" + os.sep


def load_app(text: str) -> App[Any]:
    """The app behind -A. Whatever is wrong, it says what was tried and what is there."""
    from onthedot.api.app import App, open_apps

    place, _, attribute = text.partition(":") if ":" in text else (text, "", "")
    folder, name = where(place)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _import(name, place, folder)
    apps: dict[str, App[Any]] = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if not attribute:
        return _only(apps, place)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    app = next((app for app in open_apps if app is found), None)
    if app is not None:
        return app
    kind = "has no" if found is None else "has no App in"
    raise CliError(f"{place} {kind} {attribute!r}; {_told(apps, place)}")


def where(place: str) -> tuple[Path, str]:
    """The folder to look in and the module's dotted name. A file in a package is imported as a part of it."""
    if not place.endswith(".py") and os.sep not in place:
        return Path.cwd(), place
    file = Path(place).resolve()
    if file.is_dir() or not file.exists():
        raise CliError(f"there is no file {file}; {_there(file.parent)}")
    folder, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    while (folder / "__init__.py").exists():
        folder, parts = folder.parent, [folder.name, *parts]
    return folder, ".".join(parts)


def _import(name: str, place: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise CliError(_trouble(place, error)) from None
        raise CliError(f"there is no module {error.name!r} in {folder}, nor installed; {_there(folder)}") from None
    except SyntaxError as error:
        raise CliError(f"{error.filename}:{error.lineno}: {error.msg}: {(error.text or '').strip()}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may do anything while it is imported
        raise CliError(_trouble(place, error)) from None


def _trouble(place: str, error: BaseException) -> str:
    """User code has failed: here its own frames do help."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS) and _IMPORTLIB not in frame.filename
    ]
    shown = "".join(traceback.format_list(frames)).rstrip()
    last = traceback.format_exception_only(error)[-1].strip()
    return f"{place} cannot be imported: {last}" + (f"\n{shown}" if frames else "")


def _only(apps: dict[str, App[Any]], place: str) -> App[Any]:
    different = {id(app): app for app in apps.values()}
    if len(different) == 1:
        return next(iter(different.values()))
    if "app" in apps:
        return apps["app"]
    if not apps:
        raise CliError(_told(apps, place))
    raise CliError(f"which app? {_told(apps, place)}")


def _told(apps: dict[str, App[Any]], place: str) -> str:
    if apps:
        return "there are " + ", ".join(f"{place}:{name}" for name in apps)
    return f"{place} has no App; write `app = App(…)` in it"


def _there(folder: Path) -> str:
    if not folder.is_dir():
        return f"and no folder {folder}"
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    packages = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    found = sorted(files + packages)
    shown = ", ".join(found[:8]) + (", …" if len(found) > 8 else "")
    return f"here is {shown}" if found else "there is no Python file here"
