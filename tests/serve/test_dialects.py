"""Constraints in every dialect: honoured, or refused with a pointer to the field."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from constrain.serve.protocol.chat import ChatRequest
from constrain.serve.protocol.completions import CompletionRequest
from constrain.serve.protocol.fields import ConstraintFields
from constrain.serve.protocol.responses import ResponsesRequest

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
SCHEMA["additionalProperties"] = False
DIGITS = "[0-9]{4}"
LARK = 'start: "a" /[0-9]{2}/'
GBNF = 'root ::= "a" digit{2} # two digits\ndigit ::= [0-9]'
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": {"enum": [7]}, "end": "</f>"}],
    "triggers": ["<f>"],
}
PAIR: dict[str, Any] = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}
PAIR["additionalProperties"] = False
PAIR_TAG = {"format": {"type": "json_schema", "json_schema": PAIR}}
TAGS = {
    "type": "structural_tag",
    "format": {
        "type": "tags_with_separator",
        "tags": [{"begin": "<f>", "content": {"type": "regex", "pattern": "[xy]"}, "end": "</f>"}],
        "separator": ",",
        "at_least_one": True,
        "stop_after_first": True,
    },
}


def is_record(text: str) -> bool:
    return json.loads(text) in ({"a": 1}, {"a": 2})


def is_digits(text: str) -> bool:
    return bool(re.fullmatch(DIGITS, text))


def is_choice(text: str) -> bool:
    return text in ("red", "green")


def is_grammar(text: str) -> bool:
    return bool(re.fullmatch("a[0-9]{2}", text))


def is_tagged(text: str) -> bool:
    return bool(re.fullmatch("((?!<f>).)*(<f>7</f>((?!<f>).)*)*", text, re.DOTALL))


def is_tag(text: str) -> bool:
    return bool(re.fullmatch("<f>[xy]</f>", text))


def is_compact(text: str) -> bool:
    return not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text))


CASES: list[tuple[dict[str, Any], Any]] = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}, is_record),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, is_record),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_record),
    ({"response_format": {"type": "json_object"}, "max_tokens": 60}, lambda text: isinstance(json.loads(text), dict)),
    ({"response_format": {"type": "text"}}, lambda text: True),
    ({"response_format": {"type": "regex", "value": DIGITS}}, is_digits),
    ({"response_format": {"type": "grammar", "grammar": GBNF}}, is_grammar),
    ({"response_format": TAG}, is_tagged),
    ({"response_format": TAGS}, is_tag),
    ({"structured_outputs": {"json": SCHEMA}}, is_record),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, is_record),
    ({"structured_outputs": {"regex": DIGITS}}, is_digits),
    ({"structured_outputs": {"choice": ["red", "green"]}}, is_choice),
    ({"structured_outputs": {"grammar": LARK}}, is_grammar),
    ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, is_tagged),
    ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": False}}, is_record),
    ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}}, is_compact),
    ({"structured_outputs": {"json_object": True, "disable_any_whitespace": True}, "max_tokens": 60}, is_compact),
    (
        {
            "structured_outputs": {
                "structural_tag": {"format": {"type": "json_schema", "json_schema": PAIR}},
                "disable_any_whitespace": True,
            }
        },
        is_compact,
    ),
    ({"guided_json": SCHEMA}, is_record),
    ({"guided_regex": DIGITS}, is_digits),
    ({"guided_choice": ["red", "green"]}, is_choice),
    ({"guided_grammar": GBNF}, is_grammar),
    ({"regex": DIGITS}, is_digits),
    ({"ebnf": GBNF}, is_grammar),
    ({"json_schema": json.dumps(SCHEMA)}, is_record),
    ({"json_schema": SCHEMA}, is_record),
    ({"structural_tag": TAGS}, is_tag),
    ({"grammar": GBNF}, is_grammar),
    ({"regex_pattern": DIGITS}, is_digits),
    ({"grammar_string": LARK}, is_grammar),
]


def ask(client: httpx.Client, fields: dict[str, Any], path: str = "chat/completions") -> httpx.Response:
    asked = {"messages": [{"role": "user", "content": "Hi"}]}
    if path != "chat/completions":
        asked = {"completions": {"prompt": "Hi"}, "responses": {"input": "Hi"}, "extract": {}}[path]  # type: ignore[dict-item]
    return client.post(f"/v1/{path}", json={"model": "constrain", "seed": 1, **asked, **fields})


@pytest.mark.parametrize(("fields", "holds"), CASES, ids=[str(fields)[:60] for fields, _ in CASES])
def test_a_constraint_holds(client: httpx.Client, fields: dict[str, Any], holds: Any) -> None:
    response = ask(client, {"max_tokens": 40, **fields})
    assert response.status_code == 200, response.text
    assert holds(response.json()["choices"][0]["message"]["content"])


def test_every_field_of_a_constraint_has_a_case() -> None:
    given = {name for fields, _ in CASES for name in fields}
    assert set(ConstraintFields.model_fields) <= given


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"guided_josn": {}}, "/guided_josn"),
    ({"grammar_lazy": True}, "/grammar_lazy"),
    ({"guided_whitespace_pattern": " "}, "/guided_whitespace_pattern"),
    ({"structured_outputs": {"jsn": {}}}, "/structured_outputs/jsn"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "/structured_outputs"),
    ({"structured_outputs": {}}, "/structured_outputs"),
    ({"structured_outputs": {"disable_any_whitespace": True}}, "/structured_outputs"),
    (
        {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
        "/structured_outputs/disable_any_whitespace",
    ),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": ""}}, "/structured_outputs/whitespace_pattern"),
    ({"response_format": {"type": "yaml"}}, "/response_format/type"),
    ({"response_format": {"type": "json_object", "shema": {}}}, "/response_format/shema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "/response_format/json_schema/schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "lax": 1}}},
        "/response_format/json_schema/lax",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"items": {"type": "txt"}}},
            }
        },
        "/response_format/json_schema/schema/items/type",
    ),
    ({"response_format": {**TAG, "triggers": ["<g>"]}}, "/response_format/triggers"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "xml"}}}, "/response_format/format/type"),
    (
        {"response_format": {"type": "structural_tag", "format": {"type": "regex", "pattern": r"(a)\1"}}},
        "/response_format/format/pattern",
    ),
    ({"guided_regex": "a("}, "/guided_regex"),
    ({"guided_regex": r"(a)\1"}, "/guided_regex"),
    ({"guided_choice": []}, "/guided_choice"),
    ({"guided_json": "{"}, "/guided_json"),
    ({"guided_json": {"$ref": "https://example.com/x"}}, "/guided_json/$ref"),
    ({"grammar": "root ::= (= x)"}, "/grammar"),
    ({"grammar": "start ::= x"}, "/grammar"),
    ({"guided_grammar": "start: nothing"}, "/guided_grammar"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "/guided_choice"),
    ({"guided_regex": "a{50}", "max_tokens": 3}, "/max_tokens"),
    ({"temperature": "hot"}, "/temperature"),
    ({"logit_bias": {"999999": 1}}, "/logit_bias/999999"),
    ({"stop_token_ids": [3, 999999]}, "/stop_token_ids/1"),
    ({"guided_json": {"type": "string", "minLength": 10**9}}, "/guided_json"),
    ({"grammar": 'root ::= "a"{1000000000}'}, "/grammar"),
]


@pytest.mark.parametrize(("fields", "pointer"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_honoured_is_refused_with_a_pointer(
    client: httpx.Client, fields: dict[str, Any], pointer: str
) -> None:
    response = ask(client, fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == pointer
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"{pointer}: ")


TOOL = {"type": "function", "function": {"name": "f"}}
DEEP: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"tools": [{**TOOL, "strict": True}]}, "/tools/0/strict"),
    ("chat/completions", {"tools": [{"type": "function", "function": {"name": "f", "schema": {}}}]},
     "/tools/0/function/schema"),
    ("chat/completions", {"tools": [{"type": "mcp", "custom": {"name": "f"}}]}, "/tools/0/type"),
    ("chat/completions", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objct"}}}]},
     "/tools/0/function/parameters/type"),
    ("chat/completions", {"tools": [TOOL], "tool_choice": {**TOOL, "regex": "a"}}, "/tool_choice/regex"),
    ("chat/completions", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "/tool_choice/allowed_tools"),
    ("chat/completions", {"tools": [TOOL], "tool_choice": {"type": "mcp"}}, "/tool_choice/type"),
    ("chat/completions", {"tools": [TOOL], "tool_choice": "any"}, "/tool_choice"),
    ("chat/completions", {"functions": []}, "/functions"),
    ("chat/completions", {"stream_options": {"regex": "a"}}, "/stream_options/regex"),
    ("chat/completions", {"structured_outputs": {"json": 5}}, "/structured_outputs/json"),
    ("chat/completions", {"guided_json": 5}, "/guided_json"),
    ("chat/completions", {"stop": [""]}, "/stop/0"),
    ("chat/completions", {"messages": [{"role": "user", "content": "", "regex": "a"}]}, "/messages/0/regex"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
     "/messages/0/content/0/image_url/url"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
     "/messages/0/content/0/type"),
    ("completions", {"suffix": "a"}, "/suffix"),
    ("completions", {"prompt": ["a", 5]}, "/prompt/1"),
    ("completions", {"prompt": [1 << 20]}, "/prompt"),
    ("responses", {"text": {"regex": "a"}}, "/text/regex"),
    ("responses", {"text": {"format": {"type": "xml"}}}, "/text/format/type"),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "lax": 1}}},
     "/text/format/lax"),
    ("responses", {"text": {"format": {"type": "json_object"}}, "regex": "a"}, "/regex"),
    ("responses", {"reasoning": {"budget": 1}}, "/reasoning/budget"),
    ("responses", {"tools": [{"type": "web_search"}]}, "/tools/0/type"),
    ("responses", {"tools": [{"type": "function", "name": "f", "schema": {}}]}, "/tools/0/schema"),
    ("responses", {"tools": [{"type": "function", "name": "f", "parameters": {"type": "objct"}}]},
     "/tools/0/parameters/type"),
    ("responses", {"previous_response_id": "a"}, "/previous_response_id"),
    ("responses", {"input": [{"role": "nobody"}]}, "/input/0/role"),
    ("extract", {"document": "", "schema": {"type": "objct"}}, "/schema/type"),
    ("extract", {"document": "", "schema": {}, "regex": "a"}, "/regex"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "pointer"), DEEP, ids=[f"{path} {at}" for path, _, at in DEEP])
def test_pointers_lead_to_the_part_at_fault(
    client: httpx.Client, path: str, fields: dict[str, Any], pointer: str
) -> None:
    response = ask(client, fields, path)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == pointer


def test_no_constraint_is_not_several(client: httpx.Client) -> None:
    codes = [
        ask(client, {"structured_outputs": each}).json()["error"]["code"] for each in ({}, {"json": {}, "regex": ""})
    ]
    assert codes == ["invalid_value", "several_constraints"]


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_every_endpoint_refuses_unknown_fields(client: httpx.Client, path: str) -> None:
    response = ask(client, {"some_constraint": 1}, path)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "/some_constraint")


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_fields_that_are_null_count_as_not_given(client: httpx.Client, path: str) -> None:
    fields = [*ConstraintFields.model_fields, "frequency_penalty", "n", "audio", "functions", "suffix", "conversation"]
    response = ask(client, {**dict.fromkeys(fields), "regex": "[ab]{3}"}, path)
    assert response.status_code == 200, response.text
    assert re.search("[ab]{3}", response.text)


@pytest.mark.parametrize("kind", [ChatRequest, CompletionRequest, ResponsesRequest])
def test_every_endpoint_takes_every_dialect(kind: type[ConstraintFields]) -> None:
    assert issubclass(kind, ConstraintFields)


def test_a_constraint_is_complete_within_the_limit_or_refused_with_the_minimum(client: httpx.Client) -> None:
    refused = ask(client, {"guided_json": SCHEMA, "max_tokens": 1}).json()["error"]
    needed = int(re.findall(r"(\d+) do", refused["message"])[0])
    answer = ask(client, {"guided_json": SCHEMA, "max_tokens": needed}).json()["choices"][0]
    assert is_record(answer["message"]["content"])
