"""Log probabilities of the tokens of a text: each once, in all APIs, and no others."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from call_forms import text_of
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from constrain import LLM
from constrain.completion import Options
from constrain.runtime.outputs import Piece, SampledToken, Update
from constrain.serve import Models
from constrain.serve.endpoints.common import chat_logprobs
from constrain.serve.generation import Batch, Output, Work
from constrain.serve.tools import FORMS, Function, ToolChoice
from constrain.serve.tools.reader import AnswerReader

INCLUDE = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"enum": [{}]}}}


def ask(client: httpx.Client, path: str, **fields: Any) -> httpx.Response:
    said: dict[str, Any] = {"input": "Hi"} if path == "responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    answer = client.post(f"/v1/{path}", json={"model": "constrain", "seed": 3, "temperature": 1.5, **said, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def joined(entries: list[dict[str, Any]]) -> str:
    return b"".join(bytes(each["bytes"]) for each in entries).decode()


@pytest.mark.parametrize("regex", ["[a-z]{20}", "[é\U0001f600]{6}", "(ab<c)+", "<tool_cal>x"])
def test_messages_have_those_of_their_tokens(client: httpx.Client, regex: str) -> None:
    body = {"regex": regex, "max_output_tokens": 80, **INCLUDE}
    found = TypeAdapter(Response).validate_json(ask(client, "responses", **body).text, strict=True)
    [item] = found.model_dump()["output"]
    [part] = item["content"]
    assert joined(part["logprobs"]) == part["text"] and found.top_logprobs == 2
    assert found.usage and len(part["logprobs"]) == found.usage.output_tokens
    assert all(len(each["top_logprobs"]) == 2 for each in part["logprobs"])
    text = ask(client, "responses", **body, stream=True).text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    for each in events:
        TypeAdapter(ResponseStreamEvent).validate_json(json.dumps(each), strict=True)
    deltas = [each for each in events if each["type"] == "response.output_text.delta"]
    streamed = [entry for each in deltas for entry in each["logprobs"]]
    [done] = [each for each in events if each["type"] == "response.output_text.done"]
    assert streamed == done["logprobs"]
    assert [each["token"] for each in streamed] == [each["token"] for each in part["logprobs"]]
    assert events[-1]["response"]["output"][0]["content"] == [part]


@pytest.mark.parametrize("regex", ["[a-z]{20}", "[é\U0001f600]{6}"])
def test_chat_has_the_same_at_once_and_in_chunks(client: httpx.Client, regex: str) -> None:
    body = {"regex": regex, "max_tokens": 80, "logprobs": True, "top_logprobs": 2}
    [choice] = ask(client, "chat/completions", **body).json()["choices"]
    entries = choice["logprobs"]["content"]
    assert joined(entries) == choice["message"]["content"]
    assert all(len(each["top_logprobs"]) == 2 for each in entries)
    text = ask(client, "chat/completions", **body, stream=True).text
    chunks = [json.loads(line[6:])["choices"][0] for line in text.split("\n\n")[:-2]]
    streamed = [(each["delta"].get("content", ""), each["logprobs"]["content"]) for each in chunks if each["logprobs"]]
    assert [entry for _, found in streamed for entry in found] == entries
    assert "".join(content for content, _ in streamed) == choice["message"]["content"]


def test_those_of_a_response_are_asked_for(client: httpx.Client) -> None:
    [item] = ask(client, "responses", regex="ab").json()["output"]
    assert item["content"][0]["logprobs"] == []
    refused = client.post("/v1/responses", json={"model": "constrain", "input": "Hi", "top_logprobs": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "/top_logprobs")
    [item] = ask(client, "responses", regex="ab", include=["web_search_call.action.sources"]).json()["output"]
    assert item["content"][0]["text"] == "ab"


def test_the_logarithm_of_zero_is_a_number(llm: LLM) -> None:
    [model] = Models.of({"constrain": llm}).by_name.values()
    impossible = SampledToken(5, 1.0, logprob=-math.inf, top_logprobs=[(6, -math.inf)])
    [entry] = chat_logprobs(model, [impossible])["content"]
    assert [entry["logprob"], entry["top_logprobs"][0]["logprob"]] == [-9999.0] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_calls_are_no_content(client: httpx.Client, stream: bool) -> None:
    body = {"tools": [TOOL], "tool_choice": "required", "logprobs": True, "max_tokens": 60, "stream": stream}
    text = ask(client, "chat/completions", **body).text
    chunks = [json.loads(line[6:]) for line in text.split("\n\n")[:-2]] if stream else [json.loads(text)]
    assert "tool_calls" in text
    assert not any(choice["logprobs"]["content"] for each in chunks for choice in each["choices"] if choice["logprobs"])


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_thoughts_are_counted_and_are_no_content(thinking: httpx.Client, path: str) -> None:
    asked = {"logprobs": True, "max_tokens": 40} if path != "responses" else {**INCLUDE, "max_output_tokens": 40}
    found = ask(thinking, path, regex="[a-z]{3} [a-z]{3}", model="thinker", **asked).json()
    usage = found["usage"]
    if path == "responses":
        [thoughts, item] = found["output"]
        entries, text = item["content"][0]["logprobs"], item["content"][0]["text"]
        total, reasoning = usage["output_tokens"], usage["output_tokens_details"]["reasoning_tokens"]
        assert thoughts["type"] == "reasoning"
    else:
        [choice] = found["choices"]
        entries, text = choice["logprobs"]["content"], choice["message"]["content"]
        total, reasoning = usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"]
    assert joined(entries) == text
    assert 0 < reasoning < total and len(entries) <= total - reasoning


class Ended:
    """The submission of an output whose tokens have all come together."""

    def __init__(self, text: str, tokens: list[SampledToken]) -> None:
        self.handle, self._update = self, Update(Piece(text, tokens))

    async def aupdates(self, rest: Any) -> AsyncIterator[Update]:
        yield self._update

    def read(self) -> Any:
        return SimpleNamespace(finish_reason="stop")


def test_tokens_that_come_together_are_told_apart(llm: LLM) -> None:
    [model] = Models.of({"constrain": llm}).by_name.values()
    by_content = {model.vocabulary.token_bytes(idx): idx for idx in range(model.vocabulary.size)}
    written = "<think>é</think>".encode().replace(b"\xa9", b"") + "aé<b".encode()  # thoughts end within a character
    tokens = [SampledToken(by_content[bytes([byte])], 1.0, logprob=-1.0) for byte in written]
    reader = partial(AnswerReader, FORMS["hermes"], ToolChoice((Function("f", {}, ""),)), ("<think>", "</think>"))
    work = Work(model, torch.empty(1, 0, dtype=torch.long), None, Options(max_new_tokens=9), make_reader=reader)
    output = Output(work, Ended(written.decode(errors="replace"), tokens))  # type: ignore[arg-type]

    async def batches() -> list[Batch]:
        return [batch async for batch in output.batches(lambda: 0.0)]

    found = asyncio.run(batches())
    parts = [part for batch in found for part in batch.parts]
    assert [text_of(parts, "reasoning"), text_of(parts)] == ["\ufffd", "aé<b"]
    assert [token for batch in found for token in batch.tokens] == tokens[-5:]
    assert (output.reasoning_tokens, output.num_tokens) == (len(tokens) - 5 - len("<think"), len(tokens))
