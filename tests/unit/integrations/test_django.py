"""Django projects with their own processes: Django 6.1, and Django 5.2 with django-tasks."""

from __future__ import annotations

import pytest

from tests.support.django_site.project import EXAMPLE, DjangoProject, make_project
from tests.support.services.django_environment import PACKAGES, ROOT, Release
from tests.support.services.programs import Missing, give_up

pytestmark = pytest.mark.once


GUIDE = ROOT / "docs" / "how-to" / "django.md"
SHOWN = ["shop/tasks.py", "shop/views.py"]


@pytest.mark.parametrize("name", SHOWN)
def test_guide_shows_the_files_of_the_example(name: str) -> None:
    assert f"```python\n{(EXAMPLE / name).read_text('utf-8')}```" in GUIDE.read_text("utf-8")


def test_guide_shows_the_setting_of_the_example() -> None:
    _, mark, setting = (EXAMPLE / "project" / "settings.py").read_text("utf-8").partition("TASKS = {")
    assert f"```python\n{mark}{setting}```" in GUIDE.read_text("utf-8")


@pytest.fixture(scope="module", params=list(PACKAGES))
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DjangoProject:
    release: Release = request.param
    try:
        return make_project(tmp_path_factory.mktemp(f"django-{release}"), release)
    except Missing as missing:
        give_up(missing)


def test_project_gets_what_django_documents(project: DjangoProject) -> None:
    """Of the API of a backend, and of its tasks in a worker."""
    printed = project.check("run_cases.py", "expectations.enqueue_cases", "expectations.run_cases")
    assert "OK" in printed.splitlines()[-1], printed
