from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from constrain.compat.exllamav2.server import ExLlamaV2WebSocketServer

Answers = list[dict[str, Any]]


class Socket:
    """A connection on which a client sends some messages, each after the answer to the one before has begun."""

    def __init__(self, messages: list[Any], wait: bool = True) -> None:
        self.messages = messages
        self.answers: Answers = []
        self._wait = wait
        self._answered = asyncio.Event()
        self._closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[str]:
        for message in self.messages:
            self._answered.clear()
            yield message if isinstance(message, str) else json.dumps(message)
            await self._answered.wait()
        while self._wait and self.answers[-1].get("response_type") == "chunk":
            self._answered.clear()
            await self._answered.wait()

    async def send(self, message: str) -> None:
        self.answers.append(json.loads(message))
        self._answered.set()


@pytest.fixture
def ask(loaded: Any) -> Callable[..., Answers]:
    def run(*messages: Any) -> Answers:
        async def connect() -> Answers:
            server = ExLlamaV2WebSocketServer("localhost", 0, loaded.model, loaded.tokenizer, loaded.cache)
            socket = Socket(list(messages))
            await asyncio.wait_for(server.handle(socket), 60)
            return socket.answers

        return asyncio.run(connect())

    return run


def infer(**changes: Any) -> dict[str, Any]:
    return {"action": "infer", "text": "The quick", "max_new_tokens": 6, "stream": True, "top_k": 1, **changes}


def test_a_text_is_streamed(ask: Callable[..., Answers]) -> None:
    answers = ask(infer(request_id=7, tag="x", stream_full=True))
    *chunks, last = answers
    assert chunks and all(answer["response_type"] == "chunk" and answer["request_id"] == 7 for answer in answers[:-1])
    assert chunks[-1]["response"] == last["response"] == "".join(answer["chunk"] for answer in chunks)
    assert (last["response_type"], last["stop_reason"], last["tag"]) == ("full", "num_tokens", "x")
    assert last["util_text"] == "The quick" and last["action"] == "infer"
    (whole,) = ask(infer(stream=False))
    assert whole["response"] == last["response"]


def test_texts_end(ask: Callable[..., Answers], loaded: Any) -> None:
    free = ask(infer(stream=False))[0]["response"]
    cut = ask(infer(stream=False, stop_conditions=[free[2:4]]))[0]
    assert (cut["response"], cut["stop_reason"]) == (free[: free.index(free[2:4])], "eos")
    others = [token for token in range(loaded.config.vocab_size) if token != loaded.tokenizer.single_id("do")]
    assert ask(infer(stream=False, bann_bann=others))[0]["response"] == "do" * 6


def test_prompts_are_cut_on_the_left(ask: Callable[..., Answers], loaded: Any) -> None:
    answer = ask(infer(text="fox " * 3000, stream=False, customBos="<s>"))[0]
    assert answer["util_text"].startswith("<s>") and answer["util_text"].endswith("fox ")
    assert loaded.tokenizer.encode(answer["util_text"], encode_special_tokens=True).shape[1] <= 2048 - 6


def test_a_text_can_be_stopped(ask: Callable[..., Answers]) -> None:
    answers = ask(infer(max_new_tokens=500, request_id=1), {"action": "stop", "request_id": 2})
    assert {"action": "stop", "request_id": 2} in answers
    assert answers[-1]["stop_reason"] == "interrupted" and answers[-1]["request_id"] == 1


def test_small_requests(ask: Callable[..., Answers], loaded: Any) -> None:
    text = "hello there, help"
    count, trimmed, echo = ask(
        {"action": "estimate_token", "text": text},
        {"action": "lefttrim_token", "text": text, "trimmed_length": 1, "response_id": "r"},
        {"action": "echo", "request_id": 1},
    )
    assert count["num_tokens"] == loaded.tokenizer.num_tokens(text)
    assert trimmed["trimmed_text"] and text.endswith(trimmed["trimmed_text"]) and trimmed["response_id"] == "r"
    assert echo == {"action": "echo", "request_id": 1}


def test_mistakes_are_told(ask: Callable[..., Answers]) -> None:
    answers = ask("not json", "[]", {"action": "fly"}, {"action": "infer"}, infer(max_new_tokens=5000), infer(text=5))
    errors = [answer["error"] for answer in answers]
    assert errors[:2] == ["not a JSON object"] * 2 and errors[2] == "unknown action 'fly'"
    assert errors[3] == "max_new_tokens is missing" and "leaves no room" in errors[4] and len(errors) == 6


def test_serving(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []

    @asynccontextmanager
    async def serve(*args: Any) -> AsyncIterator[None]:
        served.append(args)
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
        yield

    monkeypatch.setitem(sys.modules, "websockets", SimpleNamespace(serve=serve))
    server = ExLlamaV2WebSocketServer("localhost", 8080, loaded.model, loaded.tokenizer, loaded.cache)
    with pytest.raises(asyncio.CancelledError):
        server.serve()
    assert served == [(server.handle, "localhost", 8080)]
