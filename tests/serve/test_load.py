"""Clients that leave, too many clients, time-outs, and faults: each request gets an answer or a clear error."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

import constrain
from constrain import LLM
from constrain.errors import GenerationTimeout
from constrain.serve import Models, ServerSettings, create_app

LONG: dict[str, Any] = {"prompt": "Hello", "regex": "[a-z]{150,}", "max_tokens": 220}
#: Seconds after which a visitor leaves.
_PATIENCE = 0.2
SHORT: dict[str, Any] = {"prompt": "Hello", "guided_choice": ["yes", "no"], "max_tokens": 8}


@pytest.fixture(scope="module")
def llm(tiny_dir: Any) -> LLM:
    return constrain.load(tiny_dir, max_batch_size=16)


def app_of(llm: LLM, **settings: Any) -> Starlette:
    return create_app(Models.of({"tiny": llm}), ServerSettings(**settings))


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 300))


@asynccontextmanager
async def client_of(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=200) as client:
        yield client


class Visitor:
    """A client that sends a request and leaves: at once, after some pieces of the response, or after a while."""

    def __init__(self, app: Starlette, body: dict[str, Any], pieces: int) -> None:
        self._app, self._pieces = app, pieces
        self._body: bytes | None = json.dumps({"model": "tiny", **body}).encode()
        self._gone = asyncio.Event()
        self.sent = b""

    async def visit(self) -> None:
        if not self._pieces:
            self._gone.set()
        asyncio.get_running_loop().call_later(_PATIENCE, self._gone.set)
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        await self._app({**scope, "asgi": {"spec_version": "2.3"}}, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent += message.get("body", b"")
        self._pieces -= 1
        if self._pieces <= 0:
            self._gone.set()


async def settled(app: Starlette, llm: LLM) -> None:
    """Wait until nothing is left of earlier requests."""
    runtime, admission = llm.runtime, app.state.server.admission
    for _ in range(2000):
        if not (runtime.has_work or admission.active or len(runtime.allocator.idle) < len(runtime.allocator.pages)):
            return
        await asyncio.sleep(0.005)
    pytest.fail(f"{admission.active} requests are left")


def test_a_thousand_clients_that_leave_leave_nothing(llm: LLM) -> None:
    app, rng = app_of(llm), random.Random(0)
    threads_before = set(threading.enumerate())

    async def main() -> None:
        tasks_before = asyncio.all_tasks()
        for _ in range(10):
            visitors = [
                Visitor(app, {**LONG, "stream": rng.random() < 0.7, "n": rng.choice([1, 1, 2])}, rng.randint(0, 6))
                for _ in range(100)
            ]
            tasks = [asyncio.ensure_future(visitor.visit()) for visitor in visitors]
            await asyncio.sleep(rng.random() * 0.05)
            for task in rng.sample(tasks, 10):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await settled(app, llm)
        before = threading.active_count()
        async with client_of(app) as client:
            answer = await client.post("/v1/completions", json={"model": "tiny", **SHORT})
        assert answer.json()["choices"][0]["text"] in ("yes", "no")
        await settled(app, llm)
        assert threading.active_count() <= before + 1
        await asyncio.sleep(0)  # what was cancelled ends
        assert asyncio.all_tasks() == tasks_before

    run(main)
    assert not [thread for thread in set(threading.enumerate()) - threads_before if thread.name.startswith("asyncio_")]


FAULTS: list[dict[str, Any]] = [
    {"guided_regex": "(", "max_tokens": 8},
    {"guided_regex": "[a-z]{90}", "max_tokens": 5},
    {"prompt": []},
    {"prompt": [[999999]]},
    {"prompt": "Hello " * 400},
    {"n": 0},
    {"unknown": True},
    {"model": "other"},
    {"logit_bias": {"-1": 3}},
    {"stop": [""]},
    {"max_tokens": "many"},
    {"guided_json": {"type": "object", "minProperties": 4, "maxProperties": 3}},
    {"guided_regex": "[a-z]+", "logit_bias": {str(token): -100 for token in range(380)}},
]


@pytest.mark.parametrize("requests", [300])
def test_requests_with_random_faults_get_an_answer_or_a_clear_error(
    llm: LLM, requests: int, request: pytest.FixtureRequest
) -> None:
    app, rng = app_of(llm), random.Random(1)
    total = round(requests * request.config.getoption("--samples"))

    def body(number: int) -> dict[str, Any]:
        asked = {"model": "tiny", **SHORT, "seed": number, "stream": rng.random() < 0.4, "n": rng.choice([1, 1, 3])}
        return {**asked, **rng.choice(FAULTS)} if rng.random() < 0.5 else asked

    async def one(client: httpx.AsyncClient, number: int) -> None:
        content = json.dumps(body(number))
        if rng.random() < 0.05:
            content = content[: rng.randrange(len(content))]
        if rng.random() < 0.1:
            await Visitor(app, body(number), rng.randint(0, 3)).visit()
            return
        answer = await client.post("/v1/completions", content=content)
        assert answer.status_code in (200, 400, 404), answer.text
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
        elif answer.headers["content-type"].startswith("text/event-stream"):
            last = answer.text.strip().split("\n\n")[-1]
            assert last == "data: [DONE]" or json.loads(last.removeprefix("data: "))["error"]["message"]
        else:
            assert answer.json()["choices"]

    async def main() -> None:
        async with client_of(app) as client:
            for start in range(0, total, 100):
                await asyncio.gather(*(one(client, number) for number in range(start, min(start + 100, total))))
        await settled(app, llm)

    run(main)


def test_too_many_requests_are_told_to_come_back(llm: LLM) -> None:
    app = app_of(llm, max_requests=3)

    async def main() -> None:
        async with client_of(app) as client:
            asked = [client.post("/v1/completions", json={"model": "tiny", **LONG}) for _ in range(8)]
            answers = await asyncio.gather(*asked)
            refused = [answer for answer in answers if answer.status_code == 429]
            assert len(refused) == 5
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
            assert refused[0].json()["error"]["type"] == "rate_limit_error"
            never = await client.post("/v1/completions", json={"model": "tiny", **SHORT, "n": 4})
            assert (never.status_code, never.json()["error"]["param"]) == (400, "/n")
            texts = await client.post("/v1/completions", json={"model": "tiny", **SHORT, "prompt": ["a"] * 4})
            assert (texts.status_code, texts.json()["error"]["param"]) == (400, "/prompt")
        await settled(app, llm)

    run(main)


def test_requests_that_take_too_long_end(llm: LLM) -> None:
    app = app_of(llm, timeout=0.0)

    async def main() -> None:
        async with client_of(app) as client:
            for stream in (False, True):
                answer = await client.post("/v1/completions", json={"model": "tiny", **LONG, "stream": stream})
                assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
            extracted = await client.post("/v1/extract", json={"model": "tiny", "document": "Ada", "schema": {}})
            assert extracted.status_code == 504
            text = (await client.get("/metrics")).text
        assert 'constrain_outputs_total{reason="timeout"} 1.0' in text
        await settled(app, llm)

    run(main)


def test_the_time_of_a_request_begins_before_its_prompt_and_its_format_are_read(llm: LLM) -> None:
    body = {"model": "tiny", "prompt": [999999], "guided_regex": "("}

    async def main() -> None:
        async with client_of(app_of(llm)) as client:
            assert (await client.post("/v1/completions", json=body)).status_code == 400
        async with client_of(app_of(llm, timeout=0.0)) as client:
            assert (await client.post("/v1/completions", json=body)).status_code == 504

    run(main)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [(GenerationTimeout(1.0), "timeout", "timeout"), (None, "server_stopping", "cancelled")],
)
def test_streams_that_are_ended_say_why(llm: LLM, error: Exception | None, code: str, reason: str) -> None:
    """``error``: what ends the outputs; ``None``: the end of the server."""
    app = app_of(llm)
    server = app.state.server

    async def end() -> None:
        while not any(job.outputs for job in server.jobs):
            await asyncio.sleep(0.001)
        for job in server.jobs:
            if error is not None:
                job.fail(error)
        if error is None:
            server.end()

    async def main() -> None:
        async with client_of(app) as client:
            asked = client.post("/v1/completions", json={"model": "tiny", **LONG, "stream": True})
            stream, _ = await asyncio.gather(asked, end())
            last = stream.text.strip().split("\n\n")[-1]
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == code
            assert f'constrain_outputs_total{{reason="{reason}"}} 1.0' in (await client.get("/metrics")).text
        await settled(app, llm)

    run(main)


def test_bodies_have_a_limit(llm: LLM) -> None:
    async def main() -> None:
        async with client_of(app_of(llm, max_body_bytes=1000)) as client:
            answer = await client.post("/v1/completions", json={"model": "tiny", "prompt": "a" * 2000})
            assert answer.status_code == 413

    run(main)


def test_metrics_count_requests_and_tokens(llm: LLM) -> None:
    app = app_of(llm)

    async def main() -> None:
        async with client_of(app) as client:
            await client.post("/v1/completions", json={"model": "tiny", **SHORT})
            await client.post("/v1/completions", json={"model": "other", **SHORT})
            schema = {"type": "object", "additionalProperties": False}
            extracted = await client.post("/v1/extract", json={"model": "tiny", "document": "Ada", "schema": schema})
            assert extracted.status_code == 200, extracted.text
            used = extracted.json()["usage"]["completion_tokens"]
            text = (await client.get("/metrics")).text
        assert 'constrain_requests_total{path="/v1/completions",status="200"} 1.0' in text
        assert 'constrain_requests_total{path="/v1/completions",status="404"} 1.0' in text
        assert 'constrain_outputs_total{reason="stop"} 2.0' in text
        assert "constrain_request_seconds_count 2.0" in text
        assert float(re.findall(r'tokens_total{kind="output"} (.*)', text)[0]) > used
        assert "constrain_running 0.0" in text

    run(main)


def test_threads_take_turns_more_often_while_a_server_runs(llm: LLM) -> None:
    app, before = app_of(llm), sys.getswitchinterval()  # other tests keep a server running

    async def main() -> None:
        async with app.router.lifespan_context(app):
            assert sys.getswitchinterval() < 0.001
        assert sys.getswitchinterval() == 0.004

    sys.setswitchinterval(0.004)
    try:
        run(main)
    finally:
        sys.setswitchinterval(before)
