"""A model without a table: the admin lists it, and its permission decides on the users who see the link."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    _Model = object
else:
    _Model = models.Model


class OperatorsPage(_Model):
    """The operators' page."""

    class Meta:
        managed = False
        default_permissions: tuple[str, ...] = ("view",)
        verbose_name = "task"
        verbose_name_plural = "tasks"
