"""The token of a folder: made once, kept for this user of the machine, so that links survive restarts."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from onthedot.web.settings import MIN_TOKEN, Credential, credentials_from, new_token, token_credential

_FOR_OTHERS = 0o077  # rights that nobody but the owner may have


class SavedToken(NamedTuple):
    """text: empty if there are other credentials; file: None if nothing could be written."""

    text: str = ""
    file: Path | None = None


def credentials_of(
    folder: Path, environment: Mapping[str, str], *more: Credential
) -> tuple[tuple[Credential, ...], SavedToken]:
    """The users of the environment and `more`; without any of them an operator with the token of the folder."""
    credentials = (*credentials_from(environment), *more)
    if credentials:
        return credentials, SavedToken()
    token = saved_token(folder, environment)
    return (token_credential("operator", "operator", token.text),), token


def saved_token(folder: Path, environment: Mapping[str, str]) -> SavedToken:
    """The token of a folder; all processes of this user that serve a page from there share it.

    It is in ``$XDG_STATE_HOME/onthedot`` (``~/.local/state``), never in the folder itself, in a file that only its
    owner reads. Where nothing can be written, each process has a new token.
    """
    try:
        name = blake2b(os.fsencode(folder.resolve()), digest_size=8).hexdigest()
        place = _state_folder(environment) / f"{name}.token"
        return SavedToken(_read(place) or _write(place), place)
    except (OSError, RuntimeError):  # RuntimeError: this user has no home
        return SavedToken(new_token())


def _state_folder(environment: Mapping[str, str]) -> Path:
    named = Path(environment.get("XDG_STATE_HOME", ""))
    if named.is_absolute():  # the standard ignores relative ones
        return named / "onthedot"
    return Path.home() / ".local" / "state" / "onthedot"


def _read(place: Path) -> str:
    """Empty: there is no token that only its owner has been able to read."""
    try:
        with place.open(encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and (status.st_mode & _FOR_OTHERS or status.st_uid != os.geteuid()):
                return ""
            token = file.read().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return token if len(token) >= MIN_TOKEN else ""


def _write(place: Path) -> str:
    """Save a new token, unless another process was faster: its token is returned then."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = new_token()
    own = place.with_suffix(f".{secrets.token_hex(4)}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
        try:
            os.link(own, place)
        except FileExistsError:
            if found := _read(place):
                return found
            own.replace(place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            own.unlink()
    return token
