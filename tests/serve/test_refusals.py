"""Requests that OpenAI refuses are refused, with a pointer to the field at fault; hints and what it sends are taken."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
BROKEN = {**CALL, "function": {"name": "f", "arguments": "{"}}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
FLAT_TOOL = {"type": "function", "name": "f"}
ITEM_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
NAN = float("nan")


def messages(*given: Any) -> dict[str, Any]:
    return {"messages": [USER, *given]}


def tool(parameters: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}


def named(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, **fields}}}


CHAT: list[tuple[dict[str, Any], str]] = [
    (messages({"role": "user"}), "/messages/1/content"),
    (messages({"role": "user", "content": None}), "/messages/1/content"),
    (messages({"role": "assistant"}), "/messages/1/content"),
    (messages({"role": "nobody", "content": "a"}), "/messages/1/role"),
    (messages({"role": "user", "content": [{"type": "text"}]}), "/messages/1/content/0/text"),
    (messages({"role": "user", "content": [{"type": "text", "text": "a", "b": 1}]}), "/messages/1/content/0/b"),
    (messages({"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}),
     "/messages/1/content/0/image_url"),
    (messages({"role": "user", "content": [{"type": "file", "file": {"file_data": 5}}]}),
     "/messages/1/content/0/file/file_data"),
    (messages({"role": "user", "content": [{"type": "file", "file": {"filename": "a.txt", "file_data": "\u00e9"}}]}),
     "/messages/1/content/0/file/file_data"),
    (messages({**USER, "tool_calls": [CALL]}), "/messages/1/tool_calls"),
    (messages(CALLED, {"role": "tool", "content": "1"}), "/messages/2/tool_call_id"),
    (messages(CALLED, {"role": "tool", "content": "1", "tool_call_id": "c2"}), "/messages/2/tool_call_id"),
    (messages({**CALLED, "tool_calls": [BROKEN]}), "/messages/1/tool_calls/0/function/arguments"),
    ({"messages": None}, "/messages"),
    ({"stream_options": {}}, "/stream_options"),
    ({"tool_choice": "none"}, "/tool_choice"),
    ({"parallel_tool_calls": True}, "/parallel_tool_calls"),
    ({"tools": []}, "/tools"),
    ({"verbosity": "loud"}, "/verbosity"),
    ({"service_tier": "fastest"}, "/service_tier"),
    ({"prediction": {"type": "content", "content": 5}}, "/prediction/content"),
    ({"metadata": {"a": 5}}, "/metadata/a"),
    ({"metadata": {str(number): "" for number in range(17)}}, "/metadata"),
    (named(name="a b"), "/response_format/json_schema/name"),
    (named(name=None), "/response_format/json_schema/name"),
    (named(name="a" * 65), "/response_format/json_schema/name"),
    (named(strict="yes"), "/response_format/json_schema/strict"),
    ({"response_format": {"type": "json_schema"}}, "/response_format/json_schema"),
    ({"response_format": {"type": "regex", "grammar": "a"}}, "/response_format/grammar"),
    ({"n": True}, "/n"),
    ({"n": "2"}, "/n"),
    ({"seed": True}, "/seed"),
    ({"temperature": "0.5"}, "/temperature"),
    ({"max_tokens": "5"}, "/max_tokens"),
    ({"store": "no"}, "/store"),
    ({"guided_json": '{"const": "\\ud800"}'}, "/guided_json"),
    ({"guided_json": {"const": NAN}}, "/guided_json"),
    (tool({"type": "integer"}), "/tools/0/function/parameters/type"),
    (tool({"type": ["array", "null"]}), "/tools/0/function/parameters/type"),
    (tool({"const": 5}), "/tools/0/function/parameters/const"),
]  # fmt: skip
RESPONSES: list[tuple[dict[str, Any], str]] = [
    ({"input": [{"role": "user", "contents": "typo"}]}, "/input/0/contents"),
    ({"input": [{"role": "user"}]}, "/input/0/content"),
    ({"input": [{"type": "messages", "role": "user", "content": "a"}]}, "/input/0/type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "/input/0/content/0/text"),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "/input/0/content/0/text"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": 5}]}]},
     "/input/0/content/0/file_data"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "", "filename": 5}]}]},
     "/input/0/content/0/filename"),
    ({"input": [{"type": "function_call_output", "output": "a"}]}, "/input/0/call_id"),
    ({"input": [ITEM_CALL, {"type": "function_call_output", "call_id": "c1"}]}, "/input/1/output"),
    ({"input": [ITEM_CALL, {"type": "function_call_output", "call_id": "c2", "output": "a"}]}, "/input/1/call_id"),
    ({"input": [{**ITEM_CALL, "name": None}]}, "/input/0/name"),
    ({"input": [{**ITEM_CALL, "arguments": "{"}]}, "/input/0/arguments"),
    ({"previous_response_id": ""}, "/previous_response_id"),
    ({"metadata": {"a": NAN}}, "/metadata/a"),
    ({"chat_template_kwargs": {"a": NAN}}, "/chat_template_kwargs"),
    ({"stream_options": {"include_obfuscation": False}}, "/stream_options"),
    ({"tools": [FLAT_TOOL | {"parameters": {"type": "array"}}]}, "/tools/0/parameters/type"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "/text/format/name"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "/text/format/schema"),
    ({"text": {"verbosity": "loud"}}, "/text/verbosity"),
]  # fmt: skip
OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("completions", {"prompt": [True]}, "/prompt/0"),
    ("completions", {"prompt": "a", "stream_options": {"include_usage": True}}, "/stream_options"),
    ("completions", {"prompt": "a", "n": 2, "best_of": 1}, "/best_of"),
    ("completions", {"prompt": "a", "best_of": 2, "stream": True}, "/best_of"),
    ("completions", {"prompt": "a", "suffix": "b"}, "/suffix"),
    ("extract", {"document": "a", "schema": True}, "/schema"),
    ("extract", {"document": "a", "schema": {}, "thinking": 5}, "/thinking"),
    (
        "extract",
        {
            "document": "a",
            "schema": {"type": "string"},
            "examples": [{"document": "b", "record": "c"}, {"document": "b", "record": 5}],
        },
        "/examples/1",
    ),
    ("extract", {"document": "a", "schema": {"const": NAN}}, "/schema"),
]
CASES = [
    *(("chat/completions", {**messages(), **fields}, at) for fields, at in CHAT),
    *(("responses", {"input": "Hi", **fields}, at) for fields, at in RESPONSES),
    *OTHERS,
]


@pytest.mark.parametrize(
    ("path", "body", "param"), CASES, ids=[f"{path} {at} {n}" for n, (path, _, at) in enumerate(CASES)]
)
def test_a_request_is_refused_with_a_pointer(client: httpx.Client, path: str, body: dict[str, Any], param: str) -> None:
    answer = client.post(f"/v1/{path}", content=json.dumps({"model": "constrain", **body}))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param, error
    assert error["message"].startswith(f"{param}: ")


def test_a_document_that_cannot_be_read_is_named(client: httpx.Client) -> None:
    for document in ({"document": " "}, {"document": "a", "instructions": "b " * 9000}):
        answer = client.post("/v1/extract", json={"model": "constrain", "schema": {}, **document})
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "/document")


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"5"])
def test_a_body_that_is_no_object_has_no_field_at_fault(client: httpx.Client, content: bytes) -> None:
    answer = client.post("/v1/chat/completions", content=content)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, None)


def test_large_bodies_are_checked_as_small_ones_are(client: httpx.Client) -> None:
    body = {"model": "constrain", **messages(*[USER] * 5000, {**USER, "contents": "typo"})}
    answer = client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "/messages/5001/contents")
    answer = client.post("/v1/chat/completions", content=json.dumps(body)[:-1])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, None)


OUTPUT = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", messages(CALLED, {"role": "tool", "content": "1", "tool_call_id": "c1"})),
    ("chat/completions", messages({"role": "assistant", "content": "a", "refusal": None, "annotations": []}, USER)),
    ("chat/completions", messages({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, USER)),
    ("chat/completions", {"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}]}, USER]}),
    ("chat/completions", {"tools": [TOOL], "tool_choice": "none", "parallel_tool_calls": False}),
    ("chat/completions", {"verbosity": "low", "prediction": {"type": "content", "content": "a"}}),
    ("chat/completions", {"service_tier": "auto", "metadata": {"a": "b"}}),
    ("chat/completions", {"temperature": 1, "logit_bias": {"5": 1}}),
    ("chat/completions", {"response_format": {"type": "text", "json_schema": None}}),
    ("responses", {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {"a": "b"}}),
    ("responses", {"input": [
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [OUTPUT]},
        {"id": "r", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
        {"id": "f", "status": "completed", **ITEM_CALL},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]},
    ]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields"), TAKEN, ids=[str(number) for number in range(len(TAKEN))])
def test_hints_and_what_responses_have_are_taken(client: httpx.Client, path: str, fields: dict[str, Any]) -> None:
    body = {"input": "Hi"} if path == "responses" else {**messages(), "max_tokens": 5}
    answer = client.post(f"/v1/{path}", json={"model": "constrain", "regex": "ok", **body, **fields})
    assert answer.status_code == 200, answer.text
    assert "ok" in answer.text


@pytest.mark.parametrize(
    "value", [{"type": "json_object", "schema": None}, {**named()["response_format"], "schema": None}]
)
def test_nulls_within_a_format_count_as_not_given(client: httpx.Client, value: dict[str, Any]) -> None:
    body = {"model": "constrain", **messages(), "response_format": value, "max_tokens": 30}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("parameters", [{}, {"properties": {"a": {"type": "integer"}}}, {"type": ["object", "null"]}])
def test_arguments_are_objects(client: httpx.Client, parameters: dict[str, Any]) -> None:
    body = {"model": "constrain", **messages(), **tool(parameters), "tool_choice": "required", "max_tokens": 60, "n": 4}
    choices = client.post("/v1/chat/completions", json={**body, "temperature": 1.5, "seed": 2}).json()["choices"]
    calls = [call for choice in choices for call in choice["message"]["tool_calls"]]
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)


def test_parameters_of_the_address_are_refused(client: httpx.Client) -> None:
    for path in ("responses/resp_1?starting_after=1", "models?limit=1"):
        answer = client.get(f"/v1/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "application/vnd.api+json"}, 200),
        ({}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ],
)
def test_bodies_are_json(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    content = json.dumps({"model": "constrain", **messages(), "regex": "ok"})
    answer = client.post("/v1/chat/completions", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def test_a_key_is_asked_for(url: str) -> None:
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}, {"api-key": "secret"}):
        answer = httpx.get(f"{url}/v1/models", headers=given)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_methods_and_paths_that_there_are_not(client: httpx.Client) -> None:
    answer = client.put("/v1/responses/resp_1", json={})
    assert answer.status_code == 405
    assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "HEAD", "DELETE"}
    assert "not PUT" in answer.json()["error"]["message"]
    answer = client.post("/v1/chat/completions/", json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
