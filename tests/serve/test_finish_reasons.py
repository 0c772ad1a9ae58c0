"""Why outputs end: by themselves, at the limit of tokens, or at a text to stop at."""

from __future__ import annotations

import json
from typing import Any

import httpx

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
SAVE = {"type": "function", "function": {"name": "save", "parameters": PERSON}}
CALL: dict[str, Any] = {"tools": [SAVE], "tool_choice": "required", "parallel_tool_calls": False}


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Ada Lovelace is 36 years old."}]
    body = {"model": "constrain", "messages": messages, "temperature": 0, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_an_output_that_was_shortened_to_its_limit_is_whole_and_says_so(client: httpx.Client) -> None:
    choice = ask(client, response_format=FORMAT, max_tokens=8)["choices"][0]
    assert set(json.loads(choice["message"]["content"])) == {"name", "age"}
    assert choice["finish_reason"] == "length"
    assert ask(client, response_format=FORMAT, max_tokens=40)["choices"][0]["finish_reason"] == "stop"


def test_calls_at_the_limit_are_whole_and_say_so(client: httpx.Client) -> None:
    whole = ask(client, **CALL, max_tokens=150)
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    choice = ask(client, **CALL, max_tokens=whole["usage"]["completion_tokens"] - 3)["choices"][0]
    assert set(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])) == {"name", "age"}
    assert choice["finish_reason"] == "length"


def test_a_response_at_its_limit_is_incomplete(client: httpx.Client) -> None:
    format = {"type": "json_schema", "name": "p", "schema": PERSON}
    body = {"model": "constrain", "input": "Ada is 36.", "text": {"format": format}}
    response = client.post("/v1/responses", json={**body, "max_output_tokens": 8, "temperature": 0}).json()
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_the_last_item_of_a_response_at_its_limit_is_incomplete(client: httpx.Client) -> None:
    format = {"type": "json_schema", "name": "p", "schema": PERSON}
    body = {"model": "constrain", "input": "Ada is 36.", "text": {"format": format, "verbosity": "low"}}
    for limit, status in ((8, "incomplete"), (50, "completed")):
        text = client.post("/v1/responses", json={**body, "max_output_tokens": limit, "stream": True}).text
        events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]
        *_, done, ended = events
        assert (done["type"], ended["type"]) == ("response.output_item.done", f"response.{status}")
        assert done["item"]["status"] == ended["response"]["status"] == status
        assert ended["response"]["output"] == [done["item"]]
        assert ended["response"]["text"]["verbosity"] == "low"


def test_a_text_to_stop_at_within_a_call_ends_no_call(client: httpx.Client) -> None:
    choice = ask(client, **CALL, max_tokens=150, stop='age"')["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "save"
    assert choice["finish_reason"] == "stop"
