"""rediss://: the certificate must be signed by somebody known, be for this host, and be of today."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot import App
from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.redis import RedisStore, client
from tests.services import debian, valkey
from tests.services.certificates import Certificates, Kind
from tests.waiting import until


class Secured(NamedTuple):
    server: valkey.Server  # on its plain port
    port: int
    certificates: Certificates

    def shows(self, kind: Kind) -> None:
        chain, key = self.certificates.server(kind)
        said = self.server.ask("CONFIG", "SET", "tls-cert-file", chain, "tls-key-file", key)
        assert said == b"+OK"

    def url(self, host: str = "127.0.0.1", options: str = "tls_ca") -> str:
        return f"rediss://{host}:{self.port}?{options.replace('tls_ca', f'tls_ca={self.certificates.ca}')}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    (chain, key), port = certificates.server(), valkey.free_port()
    files = ("--tls-cert-file", str(chain), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificates.ca))
    options = ("--tls-port", str(port), *files, "--tls-auth-clients", "no")
    with valkey.server(*options, runs=debian.wanted("redis-server")) as server:
        yield Secured(server, port, certificates)


@pytest.fixture
def secured(running: Secured) -> Secured:
    running.shows("good")
    return running


async def open_and_shut(url: str) -> None:
    store = RedisStore(url)
    await store.open()
    await store.shut()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_app_over_tls(secured: Secured, host: str) -> None:
    app = App("shop", store=secured.url(host), stop_timeout=0)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app.running():
        assert await (await double.enqueue(21)).result(timeout=20) == 42
        clients = secured.server.text("CLIENT", "LIST").splitlines()
        assert {f"laddr=127.0.0.1:{secured.port} " in line for line in clients if "name=onthedot" in line} == {True}


async def test_sentinels_are_asked_over_tls_too(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    port, (chain, key) = valkey.free_port(), secured.certificates.server()
    config = (
        f"tls-port {port}\ntls-cert-file {chain}\ntls-key-file {key}\ntls-ca-cert-file {secured.certificates.ca}\n"
        "tls-auth-clients no\ntls-replication yes\n"  # by TLS it also looks after its master
        f"sentinel monitor mymaster 127.0.0.1 {secured.port} 1\n"
    )
    watcher = valkey.Server(sentinel=config, runs=debian.wanted("redis-server"))
    try:
        await until(lambda: "status=ok" in watcher.text("INFO", "sentinel"))
        hosts = f"redis+sentinel://127.0.0.1:{port}/mymaster?tls=1"
        await open_and_shut(f"{hosts}&tls_ca={secured.certificates.ca}")
        monkeypatch.setattr(client, "PATIENCE", 0.5)
        with pytest.raises(StoreUnavailable, match=r"no sentinel says where.*TLS on both sides") as told:
            await open_and_shut(hosts)  # the driver does not say why it cannot talk to them
        assert len(str(told.value)) < 300
    finally:
        watcher.close()


@pytest.mark.parametrize(
    ("kind", "options", "advice"),
    [
        ("good", "", r"nobody known has signed .* \?tls_ca=/path"),
        ("elsewhere", "tls_ca", "is for another host"),
        ("expired", "tls_ca", "out of date"),
    ],
)
async def test_what_cannot_be_trusted_is_refused_at_once(
    secured: Secured, kind: Kind, options: str, advice: str
) -> None:
    secured.shows(kind)
    began = time.monotonic()
    with pytest.raises(StoreRefused, match=f"{advice}.*tls_insecure=1, but then others"):
        await open_and_shut(secured.url(options=options))
    assert time.monotonic() - began < 3, "a second try mends no certificate"
    await open_and_shut(secured.url(options="tls_insecure=1"))


async def test_the_names_of_the_driver_are_understood(secured: Secured) -> None:
    await open_and_shut(secured.url().replace("tls_ca", "ssl_ca_certs"))


async def test_a_certificate_of_ours(secured: Secured) -> None:
    secured.server.ask("CONFIG", "SET", "tls-auth-clients", "yes")
    try:
        with pytest.raises(StoreRefused, match="wants a certificate of ours"):
            await open_and_shut(secured.url())
        chain, key = secured.certificates.server()
        await open_and_shut(secured.url(options=f"tls_ca&tls_cert={chain}&tls_key={key}"))
    finally:
        secured.server.ask("CONFIG", "SET", "tls-auth-clients", "no")


async def test_tls_on_one_side_only_is_told(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    with pytest.raises(StoreUnavailable, match="TLS on both sides or on neither"):
        await open_and_shut(f"redis://127.0.0.1:{secured.port}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://a?tls_ca=ca.pem", "tls_ca without TLS: write rediss://"),
        ("redis+cluster://a?tls_insecure=1", "tls=1"),
        ("rediss://a?tls_insecure=perhaps", "neither 1 nor 0"),
        ("rediss://a?tls_ca=/nowhere/ca.pem", "tls_ca names /nowhere/ca.pem, which is no file"),
    ],
)
async def test_options_that_make_no_sense(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=says):
        await open_and_shut(url)
