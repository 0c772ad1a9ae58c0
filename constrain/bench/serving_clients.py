"""Clients of a server, for :mod:`constrain.bench.serving`: reads what to ask, and prints tokens per second."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import Any


async def received_tokens(port: int, body: dict[str, Any]) -> int:
    """Ask for a streamed completion; return the number of its tokens when it has ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = ("POST /v1/completions HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(content)}")
    writer.write("\r\n".join([*head, "", ""]).encode() + content)
    text = (await reader.read()).decode()
    writer.close()
    _, _, usage = text.rpartition('"completion_tokens":')
    return int(usage.split("}")[0].split(",")[0])


async def rate(port: int, streams: int, bodies: list[dict[str, Any]]) -> float:
    """Return tokens per second over all completions, run with limited concurrency."""
    waiting = deque(bodies)

    async def client() -> int:
        total = 0
        while waiting:
            total += await received_tokens(port, waiting.popleft())
        return total

    start = time.perf_counter()
    totals = await asyncio.gather(*(client() for _ in range(streams)))
    return sum(totals) / (time.perf_counter() - start)


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(asyncio.run(rate(given["port"], given["streams"], given["bodies"])))
