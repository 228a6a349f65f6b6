"""rediss://: the certificate must be signed by a known authority, for this host, and valid today."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onthedot import App
from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.redis import RedisStore, client
from onthedot.stores.redis.tls_probe import read_alert
from onthedot.stores.redis.url import parse_url
from tests.support.services import debian, valkey
from tests.support.services.certificates import Certificates, Kind
from tests.support.services.ports import free_port
from tests.support.services.topologies import cluster
from tests.support.waits import SOON, until
from tests.unit.stores.redis.test_topologies import life


class Secured(NamedTuple):
    server: valkey.Server  # on its plain port
    port: int
    certificates: Certificates

    def shows(self, kind: Kind) -> None:
        chain, key = self.certificates.server(kind)
        reply = self.server.ask("CONFIG", "SET", "tls-cert-file", chain, "tls-key-file", key)
        assert reply == b"+OK"

    def url(self, host: str = "127.0.0.1", options: str = "tls_ca") -> str:
        return f"rediss://{host}:{self.port}?{options.replace('tls_ca', f'tls_ca={self.certificates.ca}')}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    options = certificates.options()
    with valkey.server(*options, runs=debian.wanted("redis-server")) as server:
        yield Secured(server, server.tls_port, certificates)


@pytest.fixture
def secured(running: Secured) -> Secured:
    running.shows("good")
    return running


def ports_of_stores(server: valkey.Server) -> set[int]:
    """The ports of the server that our connections use."""
    lines = [line.split() for line in server.text("CLIENT", "LIST").splitlines() if "name=onthedot" in line]
    return {int(word.rpartition(":")[2]) for line in lines for word in line if word.startswith("laddr=")}


async def open_and_close(url: str) -> None:
    store = RedisStore(url)
    await store.open()
    await store.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_app_works_over_tls(secured: Secured, host: str) -> None:
    app = App("shop", store=secured.url(host), stop_timeout=0)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app.running():
        assert await (await double.enqueue(21)).result(timeout=20) == 42
        assert ports_of_stores(secured.server) == {secured.port}


async def test_sentinel_is_used_over_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    (chain, key) = secured.certificates.server()
    config = (
        f"tls-port {port}\ntls-cert-file {chain}\ntls-key-file {key}\ntls-ca-cert-file {secured.certificates.ca}\n"
        "tls-auth-clients no\ntls-replication yes\n"  # by TLS it also looks after its master
        f"sentinel monitor mymaster 127.0.0.1 {secured.port} 1\n"
    )
    watcher = valkey.Server(sentinel=config, runs=debian.wanted("redis-server"))
    try:
        await until(lambda: "status=ok" in watcher.text("INFO", "sentinel"))
        hosts = f"redis+sentinel://127.0.0.1:{port}/mymaster?tls=1"
        store = RedisStore(f"{hosts}&tls_ca={secured.certificates.ca}", None, "watched")
        await store.open()
        await life(store)
        assert ports_of_stores(secured.server) == {secured.port}
        await store.close()
        monkeypatch.setattr(client, "PATIENCE", 0.5)
        with pytest.raises(StoreUnavailable, match=r"no sentinel knows the master.*TLS on both sides") as raised:
            await open_and_close(hosts)  # the driver does not say why it cannot talk to them
        assert len(str(raised.value)) < 300
    finally:
        watcher.close()


@pytest.mark.timed
async def test_cluster_works_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls and hints go to the node of the app, never over a plain port."""
    certificates = Certificates(tmp_path)
    with cluster(certificates) as nodes:
        hosts = f"redis+cluster://localhost:{nodes[0].tls_port}"
        for name in ("one", "two", "three"):  # most likely not all on one node
            store = RedisStore(f"{hosts}?tls=1&tls_ca={certificates.ca}", None, name)
            await store.open()
            await life(store)
            used = [ports_of_stores(node) for node in nodes]
            assert [ports for ports in used if ports] == [
                {n.tls_port} for n, ports in zip(nodes, used, strict=True) if ports
            ]
            await store.close()
        began = time.monotonic()
        with pytest.raises(StoreRefused, match=r"not signed by a known authority: \?tls_ca=/path"):
            await open_and_close(f"{hosts}?tls=1")
        assert time.monotonic() - began < 3, "a second try mends no certificate"
        monkeypatch.setattr(client, "PATIENCE", 0.5)
        for url in (hosts, f"redis+cluster://localhost:{nodes[0].port}?tls=1&tls_ca={certificates.ca}"):
            with pytest.raises(StoreUnavailable, match="TLS on both sides or on neither"):
                await open_and_close(url)
        await until(lambda: not any(ports_of_stores(node) for node in nodes))


@pytest.mark.timed
@pytest.mark.parametrize(
    ("kind", "options", "advice"),
    [
        ("good", "", r"not signed by a known authority: \?tls_ca=/path"),
        ("elsewhere", "tls_ca", "is for another host"),
        ("expired", "tls_ca", "out of date"),
    ],
)
async def test_untrusted_certificate_is_refused_at_once(
    secured: Secured, kind: Kind, options: str, advice: str
) -> None:
    secured.shows(kind)
    began = time.monotonic()
    with pytest.raises(StoreRefused, match=f"{advice}.*tls_insecure=1, but then others"):
        await open_and_close(secured.url(options=options))
    assert time.monotonic() - began < 3, "a second try mends no certificate"
    await open_and_close(secured.url(options="tls_insecure=1"))


async def test_tls_options_of_redis_py_are_accepted(secured: Secured) -> None:
    await open_and_close(secured.url().replace("tls_ca", "ssl_ca_certs"))


async def test_client_certificate(secured: Secured) -> None:
    secured.server.ask("CONFIG", "SET", "tls-auth-clients", "yes")
    try:
        with pytest.raises(StoreRefused, match="wants a certificate of ours"):
            await open_and_close(secured.url())
        alert = await read_alert(parse_url(secured.url()), SOON)  # however late it is read
        assert "CERTIFICATE_REQUIRED" in str(alert)
        chain, key = secured.certificates.server()
        await open_and_close(secured.url(options=f"tls_ca&tls_cert={chain}&tls_key={key}"))
    finally:
        secured.server.ask("CONFIG", "SET", "tls-auth-clients", "no")
    assert await read_alert(parse_url(secured.url()), 0.1) is None, "a server that only listens, too"


async def test_tls_on_one_side_only_is_reported(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    with pytest.raises(StoreUnavailable, match="TLS on both sides or on neither"):
        await open_and_close(f"redis://127.0.0.1:{secured.port}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://a?tls_ca=ca.pem", "tls_ca without TLS: write rediss://"),
        ("redis+cluster://a?tls_insecure=1", "tls=1"),
        ("rediss://a?tls_insecure=perhaps", "neither 1 nor 0"),
        ("rediss://a?tls_ca=/nowhere/ca.pem", "tls_ca names /nowhere/ca.pem, which does not exist"),
    ],
)
async def test_invalid_tls_options_are_refused(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=says):
        await open_and_close(url)
