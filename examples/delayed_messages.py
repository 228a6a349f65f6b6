"""A message queue in a few lines: delays, message ids, retries and dead letters.

python examples/delayed_messages.py [URL OF A STORE]
"""

from __future__ import annotations

import asyncio
import sys

from onthedot.mq import MessageQueue, MQConfig

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
mq = MessageQueue(MQConfig(url=URL, queue_prefix="shop", max_workers=2, max_retries=1, retry_delays=[0.1]))


@mq.register_handler("orders")
async def ship(order: dict[str, int]) -> None:
    print("order", order["id"], flush=True)


@mq.register_handler("emails")
def send(address: str) -> None:
    raise ConnectionError(f"no route to {address}")


async def main() -> None:
    async with mq:
        await mq.start_background()
        orders = [await mq.produce("orders", {"id": n}, delay=delay) for n, delay in ((1, 0.4), (2, 0.2), (3, 0.0))]
        again = await mq.produce("orders", {"id": 3}, message_id=orders[2])
        print("the same message:", again == orders[2], flush=True)
        email = await mq.produce("emails", "ann", ttl=60)
        for message in orders:
            await mq.app.ahandle(message)
        print("failed for good:", await mq.app.ahandle(email).exception(), flush=True)
        (letter,) = await mq.dead_letters("emails")
        print("dead letter:", letter.args["payload"], "after", letter.attempt, "attempts")


if __name__ == "__main__":
    asyncio.run(main())
