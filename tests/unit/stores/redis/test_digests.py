"""A digest names one source and policy, also if two texts have the same digest."""

from __future__ import annotations

import pytest

from onthedot.errors import ArgumentError
from onthedot.stores.contract import ClaimRequest, Completed, Effects, Lease, NewTask, Policy, SlotPool
from onthedot.stores.redis import RedisStore, policy_format
from tests.support.services import valkey


@pytest.mark.parametrize("plain", [True, False])
async def test_task_never_gets_the_source_of_another_with_the_same_digest(
    monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(policy_format, "DIGEST_BYTES", 1)
    policy_format.known_policies.clear()
    store = RedisStore(valkey.url(), name=valkey.new_name())
    await store.open()
    refused: list[str] = []
    policy = Policy(tags=("cut",), max_crashes=3 if plain else 1)
    sources = [f"cut{number}" for number in range(60)]
    for source in sources:
        try:
            await store.add([NewTask(f"of {source}", source, b"", policy=policy)])
        except ArgumentError:
            refused.append(source)
    assert 0 < len(refused) < 30
    found = await store.get([f"of {source}" for source in sources])
    for source, record in zip(sources, found, strict=True):
        assert (record is None) == (source in refused)
        assert record is None or record.source == source
    await refuses_an_outcome(store, next(s for s in sources if s not in refused), refused[0], policy)
    await store.close()
    policy_format.known_policies.clear()
    valkey.forget(store.prefix)


async def refuses_an_outcome(store: RedisStore, source: str, other: str, policy: Policy) -> None:
    """A turn with such an effect writes nothing: its outcome can be settled without the effect."""
    await store.heartbeat("w", b"", 60_000)
    claimed = (await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {source: 1})]))).claim
    assert claimed is not None
    lease = Lease(f"of {source}", claimed.fence, "w")
    effects = Effects([NewTask("child", other, b"", policy=policy)])
    with pytest.raises(ArgumentError):
        await store.turn("w", [Completed(lease, effects=effects)], None)
    assert list((await store.turn("w", [Completed(lease)], None)).verdicts) == ["ok"]


def test_digests_have_twelve_bytes() -> None:
    assert len(policy_format.pack_policy("a", Policy()).digest) == 16
