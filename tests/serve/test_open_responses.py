"""The cases of the Open Responses compliance suite, but for image input, which no model here reads."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
        "required": ["location"],
    },
}
CASES: dict[str, dict[str, Any]] = {
    "basic": {"input": [{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}]},
    "system prompt": {
        "input": [
            {"type": "message", "role": "system", "content": "You are a pirate. Always respond in pirate speak."},
            {"type": "message", "role": "user", "content": "Say hello."},
        ]
    },
    "streaming": {"input": [{"type": "message", "role": "user", "content": "Count from 1 to 5."}]},
    "multi-turn": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Alice."},
            {"type": "message", "role": "assistant", "content": "Hello Alice! Nice to meet you."},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
    "tool calling": {
        "input": [{"type": "message", "role": "user", "content": "What's the weather like in San Francisco?"}],
        "tools": [WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
}
RESPONSE: TypeAdapter[Response] = TypeAdapter(Response)
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
#: Fields that the specification requires of a response.
REQUIRED = """id object created_at completed_at status incomplete_details model previous_response_id instructions output
error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs
temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier
prompt_cache_key""".split()


def body(case: str) -> dict[str, Any]:
    # The built-in model would not end such an answer by itself.
    limits = {} if "tools" in CASES[case] else {"regex": "[a-z]{1,20}"}
    return {"model": "constrain", "seed": 1, "max_output_tokens": 100, **limits, **CASES[case]}


def check(response: dict[str, Any], case: str) -> None:
    assert not [name for name in REQUIRED if name not in response]
    RESPONSE.validate_json(json.dumps(response), strict=True)
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["output"]
    if "tools" in CASES[case]:
        [call] = response["output"]
        assert call["type"] == "function_call"
        assert isinstance(json.loads(call["arguments"])["location"], str)


@pytest.mark.parametrize("case", CASES)
def test_responses(client: httpx.Client, case: str) -> None:
    answer = client.post("/v1/responses", json=body(case))
    assert answer.status_code == 200, answer.text
    check(answer.json(), case)


@pytest.mark.parametrize("case", CASES)
def test_streams(client: httpx.Client, case: str) -> None:
    text = client.post("/v1/responses", json={**body(case), "stream": True}).text
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]
    names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
    assert [event["type"] for event in events] == names
    assert [EVENT.validate_json(json.dumps(event), strict=True).type for event in events] == names
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    check(events[-1]["response"], case)
    kind = "function_call" if "tools" in CASES[case] else "message"
    delta = "function_call_arguments" if "tools" in CASES[case] else "output_text"
    for name in ("added", "done"):
        items = [event["item"]["type"] for event in events if event["type"] == f"response.output_item.{name}"]
        assert items == [kind]
    pieces = [event["delta"] for event in events if event["type"] == f"response.{delta}.delta"]
    [done] = [event for event in events if event["type"] == f"response.{delta}.done"]
    assert "".join(pieces) == done.get("text", done.get("arguments"))
