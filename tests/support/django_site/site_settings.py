"""The settings of the example, with an app of tests, and the store and database of the test."""

import json
import os
from typing import Any

import django
from project.settings import *  # noqa: F403 - as projects derive settings
from project.settings import INSTALLED_APPS, TASKS

INSTALLED_APPS = [*INSTALLED_APPS, "expectations"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
ALLOWED_HOSTS = ["*"]
LOGGING_CONFIG = None
OPTIONS: Any = TASKS["default"]["OPTIONS"]
if "TEST_STORE" in os.environ:
    OPTIONS["STORE"] = os.environ["TEST_STORE"]
if "TEST_DATABASE" in os.environ:  # of Postgres
    DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", **json.loads(os.environ["TEST_DATABASE"])}}
TASKS["default"]["QUEUES"] = ["default", "reports", "gpu"]
