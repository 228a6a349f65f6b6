"""Identities of callers: tokens, the cookie of a browser, a function of the host program, and roles."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

from starlette.requests import Request
from starlette.responses import Response

from onthedot.clock.protocol import Clock
from onthedot.web.settings import Credential, Role, User, WebSettings

COOKIE_AGE = 12 * 3600  # seconds
_RENEW_AFTER = 3600  # seconds of use
UserFunction: TypeAlias = Callable[[Request], "User | Awaitable[User | None] | None"]


class Identity(NamedTuple):
    """A caller that is known. by: how; renewed: the cookie value to set, so that a session in use does not end."""

    user: User
    by: Literal["bearer", "cookie", "host"]
    renewed: str = ""


class Authenticator(Protocol):
    """Finds out who calls."""

    has_sign_in: bool  # whether a token can be exchanged for a cookie

    async def identify(self, request: Request) -> Identity | None:
        """None: nobody that is known."""
        ...

    def sign_in(self, token: str) -> User | None:
        """The user of a token; None: it is wrong."""
        ...


class TokenAuthenticator:
    """Tokens, and cookies that they were exchanged for.

    A cookie is ``name.role.expiry.HMAC``: nothing is stored, every process accepts it, and it is void when a token, a
    name or a role changes, since its key is derived from all of them.
    """

    has_sign_in = True

    def __init__(self, credentials: Sequence[Credential], clock: Clock) -> None:
        self._credentials = tuple(credentials)
        self._clock = clock
        material = [f"{each.user.name}:{each.user.role}:{each.digest.hex()}" for each in self._credentials]
        self.key: bytes = sha256("\n".join(["onthedot cookie", *sorted(material)]).encode()).digest()

    async def identify(self, request: Request) -> Identity | None:
        given = request.headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            user = self.sign_in(token.strip()) if scheme.lower() == "bearer" else None
            return None if user is None else Identity(user, "bearer")
        value = request.cookies.get(cookie_name(request))
        if value is None:
            return None
        return self._read_cookie(value)

    def sign_in(self, token: str) -> User | None:
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: User | None = None
        for each in self._credentials:  # all of them, so that the time does not depend on the token
            if hmac.compare_digest(digest, each.digest):
                found = each.user
        return found

    def new_cookie(self, user: User) -> str:
        expiry = int(self._clock.now() / 1000) + COOKIE_AGE
        text = f"{user.name}.{user.role}.{expiry}"
        return f"{text}.{self._sign(text)}"

    def _read_cookie(self, value: str) -> Identity | None:
        text, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(text).encode()):
            return None
        name, _, expiry = text.rsplit(".", 2)
        left = int(expiry) - self._clock.now() / 1000
        user = next((each.user for each in self._credentials if each.user.name == name), None)
        if left <= 0 or user is None:
            return None
        renewed = self.new_cookie(user) if left < COOKIE_AGE - _RENEW_AFTER else ""
        return Identity(user, "cookie", renewed)

    def _sign(self, text: str) -> str:
        return hmac.digest(self.key, text.encode("utf-8", "replace"), "sha256").hex()


class FunctionAuthenticator:
    """The users of the host program: ``fn(request)`` returns a User, or None. It is called for every request."""

    has_sign_in = False

    def __init__(self, function: UserFunction) -> None:
        self._function = function

    async def identify(self, request: Request) -> Identity | None:
        found = self._function(request)
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            return None
        if not isinstance(found, User) or found.role not in get_args(Role):
            raise TypeError(
                f"user= of dashboard() returned {found!r}; it returns User(name, 'viewer' or 'operator') or None"
            )
        return Identity(found, "host")

    def sign_in(self, token: str) -> User | None:  # noqa: ARG002 - tokens are not known here
        return None


def anyone(request: Request) -> User:  # noqa: ARG001 - the signature of a user function
    """Opens the page to everybody who reaches it, as viewers: ``dashboard(app, user=anyone)``.

    Args:
        request: Not looked at.
    """
    return User("anyone", "viewer")


def restrict_role(user: User, settings: WebSettings) -> User:
    """With `read_only` everybody is a viewer."""
    if settings.read_only:
        return User(user.name, "viewer")
    return user


def is_https(request: Request) -> bool:
    settings: WebSettings = request.scope["onthedot.settings"]
    return settings.is_https or request.scope["scheme"] == "https"


def cookie_name(request: Request) -> str:
    """Cookies do not know ports, so the name has it. The prefixes make browsers check how it is set."""
    _, port = request.scope.get("server") or ("", None)
    name = f"onthedot_{port or 0}"
    if not is_https(request):
        return name
    return f"__Secure-{name}" if base_path(request) else f"__Host-{name}"


def base_path(request: Request) -> str:
    """The path below which the page is served, without a slash at the end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def set_cookie(request: Request, response: Response, value: str) -> None:
    response.set_cookie(
        cookie_name(request),
        value,
        max_age=COOKIE_AGE,
        path=base_path(request) or "/",
        secure=is_https(request),
        httponly=True,
        samesite="lax",
    )


def clear_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(
        cookie_name(request),
        path=base_path(request) or "/",
        secure=is_https(request),
        httponly=True,
        samesite="lax",
    )
