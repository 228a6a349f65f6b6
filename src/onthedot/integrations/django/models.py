"""A model without a table: the admin lists it, and its permission decides on the users who see the link."""
# Django has no types.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from typing import Any

from django.db import models

_Model: Any = models.Model


class OperatorsPage(_Model):  # type: ignore[misc]
    """The operators' page."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = "task"
        verbose_name_plural = "tasks"
