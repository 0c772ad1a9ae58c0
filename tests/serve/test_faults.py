"""Clients of a running server that vanish, or send what they should not: each is answered, and nothing is left of them.

``--samples 20`` takes 1,000 of the former, and 10,000 requests.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest
import uvicorn

import constrain
from constrain import LLM
from constrain.serve import Models, ServerSettings, create_app

_AT_A_TIME = 50
_LIMIT = 100_000

_MESSAGES = [{"role": "user", "content": "Ada, 36"}]
_SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
#: Bodies that are right, by path.
_RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "Hello", "guided_choice": ["yes", "no"], "max_tokens": 8}),
    ("/v1/completions", {"prompt": ["Hello", "Bye"], "regex": "[a-z]{3}", "max_tokens": 8, "n": 2, "logprobs": 2}),
    (
        "/v1/completions",
        {"prompt": "Hello", "max_tokens": 4, "stop": ["a"], "logit_bias": {"5": 1}, "echo": True, "logprobs": 1},
    ),
    ("/v1/chat/completions", {"messages": _MESSAGES, "max_tokens": 30, "json_schema": _SCHEMA, "temperature": 0.5}),
    ("/v1/chat/completions", {"messages": _MESSAGES, "max_tokens": 90, "tools": [_TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": _MESSAGES, "max_tokens": 8, "ebnf": 'root ::= "a" | "b"', "top_p": 0.5}),
    ("/v1/responses", {"input": "Hello", "max_output_tokens": 8, "regex": "[0-9]{2}"}),
    ("/v1/extract", {"document": "Ada", "schema": _SCHEMA, "max_tokens": 60}),
]
#: Values that are wrong in most places.
_ODD: list[Any] = [
    *(None, True, -1, 0, 10**400, -(2**63), 0.5, 1e308, "", "\x00", "a" * 2000, "\ud83d", [], {}, [[]], [None]),
    *({"type": "nothing"}, {"$ref": "#/nowhere"}, {"allOf": [False]}, {"": {"": {}}}, [[7, -7]], "[", "(a{900}){900}"),
]
#: One of them is in every whole stream.
_ENDS = (b"data: [DONE]", b'"error":{"message":', b"event: response.completed", b"event: response.incomplete")


class Running:
    """A server of a model on a thread.

    Attributes:
        port: where it listens.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm, self.app = llm, create_app(Models.of({"tiny": llm}), ServerSettings(max_body_bytes=_LIMIT))
        self._server = uvicorn.Server(uvicorn.Config(self.app, port=0, log_level="critical"))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    @property
    def left(self) -> dict[str, int]:
        """Return the state that requests have left: outputs, sequences, pages in use, connections and tasks."""
        runtime, state = self.llm.runtime, self._server.server_state
        found = {
            "outputs": self.app.state.server.admission.active,
            "sequences": len(runtime.scheduler.waiting) + len(runtime.scheduler.running),
            "handles": len(runtime._handles),
            "pages": len(runtime.allocator.pages) - len(runtime.allocator.idle),
            "connections": len(state.connections),
            "tasks": len(state.tasks),
        }
        return {name: count for name, count in found.items() if count}

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def server(tiny_dir: Any) -> Iterator[Running]:
    """A running server, of whose requests nothing is left in the end."""
    llm = constrain.load(tiny_dir, max_batch_size=16)
    before = set(threading.enumerate())
    running = Running(llm)
    try:
        yield running
        wait_until(lambda: not running.left)
        assert not running.left
    finally:
        running.close()
    # The threads of pools go with the server; the one that steps the runtime when it has been idle for a while.
    wait_until(lambda: len(set(threading.enumerate()) - before) <= 1)
    left = set(threading.enumerate()) - before
    assert len(left) <= 1, left


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, half a minute at the most."""
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def many(count: int, visit: Callable[[int], Awaitable[None]]) -> None:
    """Make a number of visits, several of them at the same time."""
    numbers = iter(range(count))

    async def visitor() -> None:
        for number in numbers:
            await asyncio.wait_for(visit(number), 120)

    async def visitors() -> None:
        await asyncio.gather(*(visitor() for _ in range(_AT_A_TIME)))

    asyncio.run(visitors())


def test_clients_that_vanish_leave_nothing(server: Running, pytestconfig: pytest.Config) -> None:
    rng = random.Random(0)

    async def visit(number: int) -> None:
        asked = {"prompt": "Hello", "regex": "[a-z]{150,}", "max_tokens": 220, "n": rng.choice([1, 1, 2])}
        content = json.dumps({"model": "tiny", **asked, "stream": number % 8 != 1}).encode()
        sent = http("POST", "/v1/completions", content)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        if number % 8 == 0:  # leaves before all is sent, ...
            writer.write(sent[: rng.randrange(len(sent))])
        elif number % 8 < 3:  # ... while the request waits or is read, ...
            writer.write(sent)
            await asyncio.sleep(rng.random() / 10)
        else:  # ... or in the middle of the answer
            writer.write(sent)
            await reader.readuntil(b"data: ")
            await asyncio.wait([asyncio.ensure_future(reader.read(rng.randrange(1, 4000)))], timeout=rng.random() / 10)
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()

    many(round(50 * pytestconfig.getoption("--samples")), visit)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
        asked = {"model": "tiny", "prompt": "Hello", "guided_choice": ["yes", "no"], "max_tokens": 8}
        assert client.post("/v1/completions", json=asked).json()["choices"][0]["text"] in ("yes", "no")
        counts = client.get("/metrics").text
    assert 'constrain_outputs_total{reason="cancelled"}' in counts
    assert 'status="5' not in counts


def test_requests_with_faults_get_an_answer_or_a_clear_error(server: Running, pytestconfig: pytest.Config) -> None:
    rng, found = random.Random(pytestconfig.getoption("--seed")), Counter[int]()

    async def visit(number: int) -> None:
        path, content = faulty(rng)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(http("POST", path, content))
        answer = await reader.read()
        writer.close()
        found[check_answer(path, content, answer)] += 1

    many(round(500 * pytestconfig.getoption("--samples")), visit)
    assert found[200] and found[400]


def http(method: str, path: str, content: bytes) -> bytes:
    head = (f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(content)}")
    return "\r\n".join([*head, "", ""]).encode() + content


def faulty(rng: random.Random) -> tuple[str, bytes]:
    """Return a path and a body with up to three random faults."""
    path, right = rng.choice(_RIGHT)
    body = json.loads(json.dumps({"model": "tiny", **right}))
    if rng.random() < 0.3 and path != "/v1/extract":
        body["stream"] = True
    for _ in range(rng.randrange(4)):
        spoil(body, rng)
    content = bytearray(json.dumps(body).encode())
    kind = rng.random()
    if kind < 0.05:
        del content[rng.randrange(len(content)) :]
    elif kind < 0.1:
        content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind < 0.11:
        content = bytearray(b'{"prompt": ' + b"[" * 5000)
    elif kind < 0.12:
        content += b" " * _LIMIT
    return path, bytes(content)


def spoil(value: Any, rng: random.Random) -> None:
    """Change, remove or add one member at a random place."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if not (isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.7):
            break
        value = value[key]
    kind = rng.random()
    if kind < 0.2:
        del value[key]
    elif kind < 0.3 and isinstance(value, dict):
        value[rng.choice(["guided_jsn", "best_of", "a", "type", "n"])] = deepcopy(rng.choice(_ODD))
    else:
        value[key] = deepcopy(rng.choice(_ODD))


def check_answer(path: str, content: bytes, answer: bytes) -> int:
    """Return the status of an answer, which has to be whole, and say what is wrong if anything is."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    shown = f"{path} {content[:600]!r}: {answer[:800]!r}"
    assert status in (200, 400, 404, 413, 422), shown
    if status != 200:
        assert json.loads(body)["error"]["message"], shown
    elif b"text/event-stream" in head:
        assert any(end in body for end in _ENDS), shown
    else:
        assert json.loads(body), shown
    return status
