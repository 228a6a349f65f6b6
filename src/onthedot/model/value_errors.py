"""Errors about single values: subclasses of the public ones that are also a ValueError."""

from __future__ import annotations

from onthedot.errors import ArgumentError, BadEvent, DeclarationError


class SettingError(DeclarationError, ValueError):
    """The error of a name or setting of an app, a task or an executor."""


class InvalidOption(ArgumentError, ValueError):
    """The error of a call option. It is a ValueError, too, as of every naive datetime."""


class BadEventField(BadEvent, ValueError):
    """The error of a field of an event whose value is out of range."""
