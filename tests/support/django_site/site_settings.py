"""The settings of the example, with an app of tests, and the store and database of the test."""

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
if "TEST_POSTGRES" in os.environ:  # name:host:port:user
    name, host, port, user = os.environ["TEST_POSTGRES"].split(":")
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "HOST": host,
            "PORT": port,
            "USER": user,
        }
    }
TASKS["default"]["QUEUES"] = ["default", "reports", "gpu"]
