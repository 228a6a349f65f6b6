"""Streams of changes like those of open tabs, half of Overview, half of Tasks: ``tabs PORT NUMBER TOKEN…``.

Each user has at most 12 streams, so that many need several tokens. It prints a line when all are open, reads until its
input ends, and prints the bytes that it has read.
"""

from __future__ import annotations

import asyncio
import sys

_WATCHES = ("overview", "tasks")


async def follow(port: int, token: str, watch: str, opened: asyncio.Semaphore) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = [f"GET /api/v1/changes?watch={watch} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}"]
    writer.write("\r\n".join([*head, "", ""]).encode())
    await reader.readuntil(b"event: hello")
    opened.release()
    number = 0
    try:
        while data := await reader.read(65_536):
            number += len(data)
    except asyncio.CancelledError:
        writer.transport.abort()
    return number


async def main(port: int, number: int, tokens: list[str]) -> None:
    opened = asyncio.Semaphore(0)
    tabs = [
        asyncio.create_task(follow(port, tokens[tab // 2 % len(tokens)], _WATCHES[tab % 2], opened))
        for tab in range(number)
    ]
    for _ in tabs:
        await opened.acquire()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for tab in tabs:
        tab.cancel()
    print(sum(await asyncio.gather(*tabs)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
