"""Custom tools: texts by a grammar, in the forms of the families of models, and over both APIs."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import httpx
import pytest
from call_forms import VOCABULARY, calls_of, text_of
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageCustomToolCall
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from constrain.serve.protocol.custom import Definition
from constrain.serve.tools import FORMS, Function, ToolChoice, answer_format
from constrain.serve.tools.custom import json_of
from constrain.serve.tools.reader import AnswerReader, CallArguments, CallStarted, Part

LARK = r"""
start: item ("," item)*
item: WORD | QUOTED | TAG
WORD: /[a-z]+/
QUOTED: /"[^"]*"/s
TAG: /<\/?[a-z_:]+>\n?/
"""
PIECES = [
    "ab",
    '"é\n\\\t"',
    '"\U0001f600"',
    "</parameter>\n",
    "</arg_value>",
    "</tool_call>",
    "</function>\n",
    '"}"',
    '""',
]
QUERY: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "more": {"type": "object"}},
    "required": ["text", "more"],
    "additionalProperties": False,
}


def tools(syntax: Any = "lark", definition: str = LARK) -> tuple[Function, ...]:
    custom = Function.of_custom("run", "", Definition(syntax=syntax, definition=definition), "/at", VOCABULARY)
    free = Function.of_custom("say", "", None, "/free", VOCABULARY)
    return custom, free, Function("find", QUERY, "/find")


def written(form: Any, name: str, arguments: dict[str, Any]) -> str:
    """A call as a model of a family writes it."""
    if form.arguments == "json":
        return str(form.written([(name, json.dumps(arguments, ensure_ascii=False))]))
    before_key, after_key, before_value, after_value = form.tags
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    pairs = (f"{before_key}{key}{after_key}{before_value}{text}{after_value}" for key, text in texts.items())
    return str(form.written([(name, "".join(pairs))]))


def read(form: Any, choice: ToolChoice, text: str, step: int) -> list[Part]:
    reader = AnswerReader(form, choice, form.reasoning)
    parts = [part for start in range(0, len(text), step) for part in reader.feed(text[start : start + step])]
    assert not reader.in_call
    return parts + reader.feed("", is_last=True)


@pytest.mark.parametrize("name", FORMS)
def test_texts_are_allowed_and_read_back(name: str) -> None:
    form, rng = FORMS[name], random.Random(name)
    choice = ToolChoice(tools())
    format = answer_format(form, choice, None, VOCABULARY)
    assert format is not None
    compiled = format.compile(VOCABULARY)
    for number in range(20):
        text = ",".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5)))
        call = written(form, "run", {"input": text})
        assert compiled.accepts(call, special_tokens=True), text
        parts = read(form, choice, call, rng.choice([1, 3, len(call)]))
        [started] = [part for part in parts if isinstance(part, CallStarted)]
        found = "".join(part.text for part in parts if isinstance(part, CallArguments) and part.is_custom)
        assert (started.name, started.is_custom, found, text_of(parts)) == ("run", True, text, ""), number
    assert not compiled.accepts(written(form, "run", {"input": "A"}), special_tokens=True)


@pytest.mark.parametrize("name", FORMS)
def test_texts_of_any_form_and_arguments_are_read_as_they_were_written(name: str) -> None:
    form, choice = FORMS[name], ToolChoice(tools())
    format = answer_format(form, choice, None, VOCABULARY)
    assert format is not None
    compiled = format.compile(VOCABULARY)
    ends = "</tool_call></function></invoke></seed:tool_call>"
    for text in ("", 'a "b" \\ \U0001f600\n', ends, '{"input": "x"}'):
        call = written(form, "say", {"input": text})
        assert compiled.accepts(call, special_tokens=True), text
        parts = read(form, choice, call, 2)
        assert "".join(part.text for part in parts if isinstance(part, CallArguments)) == text
    for more in ({"a": f"{ends}</arg_value></parameter>"}, {"n": 12345678901234567890, "f": 1e300}):
        arguments = {"text": ends, "more": more}
        call = written(form, "find", arguments)
        assert compiled.accepts(call, special_tokens=True), call
        assert calls_of(read(form, choice, call, 1)) == [("find", arguments)]


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.arguments == "tags"])
def test_numbers_between_tags_are_kept_as_they_were_written(name: str) -> None:
    schema = {"properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False}
    form, choice = FORMS[name], ToolChoice((Function("f", {"type": "object", **schema}, ""),))
    before_key, after_key, before_value, after_value = form.tags
    for number in ("1.0", "1e999", "0.1000000000000000055511"):
        text = form.written([("f", f"{before_key}x{after_key}{before_value}{number}{after_value}")])
        [_, arguments] = read(form, choice, text, 5)
        assert isinstance(arguments, CallArguments)
        assert arguments.text == f'{{"x": {number}}}'


def test_escapes_of_texts_may_come_in_pieces() -> None:
    form, choice = FORMS["hermes"], ToolChoice(tools())
    call = form.written([("say", '{"input":"\\ud83d\\ude00\\u00e9\\n\\"\\\\"}')])
    for step in range(1, 9):
        parts = read(form, choice, call, step)
        assert "".join(part.text for part in parts if isinstance(part, CallArguments)) == '\U0001f600é\n"\\'
    assert json_of("\U0001f600") == '{"input": "\U0001f600"}'


CHAT_TOOL = {"type": "custom", "custom": {"name": "run", "description": "Runs."}}
FLAT_TOOL = {"type": "custom", "name": "run", "description": "Runs."}
FUNCTION = {"type": "function", "function": {"name": "f"}}
REGEX = r'^(?P<word>[a-z]{2,5}) "\d{2}"$'
GRAMMAR = 'start: "(" WORD ("\\n" WORD)* ")"\nWORD: /[a-z]{1,3}/'
DEFINITIONS = [("regex", REGEX, REGEX), ("lark", GRAMMAR, r"\([a-z]{1,3}(\n[a-z]{1,3})*\)")]


def chat_tool(syntax: str, definition: str) -> dict[str, Any]:
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {**CHAT_TOOL["custom"], "format": format}}  # type: ignore[dict-item]


def flat_tool(syntax: str, definition: str) -> dict[str, Any]:
    return {**FLAT_TOOL, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def ask(client: httpx.Client, path: str, **fields: Any) -> httpx.Response:
    said = {"messages": [{"role": "user", "content": "Go"}]} if path == "chat/completions" else {"input": "Go"}
    return client.post(f"/v1/{path}", json={"model": "constrain", "seed": 1, "temperature": 1.5, **said, **fields})


@pytest.mark.parametrize(("syntax", "definition", "pattern"), DEFINITIONS)
def test_chats_call_custom_tools(client: httpx.Client, syntax: str, definition: str, pattern: str) -> None:
    choice = {"type": "custom", "custom": {"name": "run"}}
    body = {"tools": [FUNCTION, chat_tool(syntax, definition)], "tool_choice": choice, "max_tokens": 60}
    found = ChatCompletion.model_validate_json(ask(client, "chat/completions", **body).text)
    assert found.choices[0].finish_reason == "tool_calls"
    [call] = found.choices[0].message.tool_calls or [None]
    assert isinstance(call, ChatCompletionMessageCustomToolCall) and re.fullmatch(pattern, call.custom.input)
    text = ask(client, "chat/completions", stream=True, **body).text
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in text.split("\n\n")[:-2]]
    calls = [each for delta in deltas for each in delta.get("tool_calls", ())]
    assert (calls[0]["type"], calls[0]["custom"]["name"]) == ("custom", "run")
    assert "".join(each["custom"]["input"] for each in calls) == call.custom.input


@pytest.mark.parametrize(("syntax", "definition", "pattern"), DEFINITIONS)
def test_responses_call_custom_tools(client: httpx.Client, syntax: str, definition: str, pattern: str) -> None:
    body = {"tools": [flat_tool(syntax, definition)], "tool_choice": "required", "max_output_tokens": 60}
    one = {"parallel_tool_calls": False}
    found = TypeAdapter(Response).validate_json(ask(client, "responses", **body, **one).text, strict=True)
    [call] = found.output
    assert call.type == "custom_tool_call" and re.fullmatch(pattern, call.input)
    text = ask(client, "responses", stream=True, **body, **one).text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    kinds = [TypeAdapter(ResponseStreamEvent).validate_json(json.dumps(each), strict=True).type for each in events]
    assert kinds[2] == "response.output_item.added" and events[2]["item"]["type"] == "custom_tool_call"
    name = "response.custom_tool_call_input"
    assert "".join(each["delta"] for each in events if each["type"] == f"{name}.delta") == call.input
    assert [each["input"] for each in events if each["type"] == f"{name}.done"] == [call.input]


def test_calls_of_custom_tools_are_part_of_a_conversation(client: httpx.Client) -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": 'a\n"b"'}}
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"}]  # fmt: skip
    answer = ask(client, "chat/completions", messages=messages, tools=[CHAT_TOOL, FUNCTION], tool_choice="none")
    assert answer.status_code == 200, answer.text
    first = ask(client, "responses", tools=[FLAT_TOOL], tool_choice={"type": "custom", "name": "run"}).json()
    [item] = first["output"]
    assert first["tools"] == [{**FLAT_TOOL, "format": {"type": "text"}}]
    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}
    for body in ({"input": [result], "previous_response_id": first["id"]}, {"input": [item, result]}):
        assert ask(client, "responses", regex="ok", **body).json()["output"][0]["content"][0]["text"] == "ok"
    reference = {"type": "item_reference", "id": item["id"]}
    assert ask(client, "responses", regex="ok", input=[reference, result]).status_code == 200
    unknown = ask(client, "responses", input=[{**result, "call_id": "c2"}])
    assert unknown.json()["error"]["param"] == "/input/0/call_id"


def test_the_client_of_openai_calls_custom_tools(url: str) -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
    asked: Any = {
        "tools": [flat_tool("regex", "[a-z]{3}")],
        "input": "Go",
        "model": "constrain",
        "tool_choice": "required",
    }
    with client.responses.stream(**asked, parallel_tool_calls=False, max_output_tokens=60) as stream:
        [call] = stream.get_final_response().output
    assert call.type == "custom_tool_call" and re.fullmatch("[a-z]{3}", call.input)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"tools": [{"type": "custom"}]}, "/tools/0/custom"),
    ("chat/completions", {"tools": [{"type": "custom", "custom": {"name": "a b"}}]}, "/tools/0/custom/name"),
    ("chat/completions", {"tools": [chat_tool("lark", "start: A")]}, "/tools/0/custom/format/grammar/definition"),
    ("chat/completions", {"tools": [chat_tool("lark", 'start: "a" %json {}')]},
     "/tools/0/custom/format/grammar/definition"),
    ("chat/completions", {"tools": [chat_tool("regex", "(")]}, "/tools/0/custom/format/grammar/definition"),
    ("chat/completions", {"tools": [chat_tool("regex", r"(a)\1")]}, "/tools/0/custom/format/grammar/definition"),
    ("chat/completions", {"tools": [chat_tool("regex", r"a\bb")]}, "/tools/0/custom/format/grammar/definition"),
    ("chat/completions", {"tools": [chat_tool("peg", "a")]}, "/tools/0/custom/format/grammar/syntax"),
    ("chat/completions", {"tools": [CHAT_TOOL, CHAT_TOOL]}, "/tools"),
    ("chat/completions", {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "run"}}},
     "/tool_choice"),
    ("responses", {"tools": [{"type": "web_search"}]}, "/tools/0/type"),
    ("responses", {"tools": [{**FLAT_TOOL, "format": {"type": "yaml"}}]}, "/tools/0/format/type"),
    ("responses", {"tools": [flat_tool("lark", "start: A")]}, "/tools/0/format/definition"),
    ("responses", {"tools": [flat_tool("lark", "start: start")]}, "/tools/0/format/definition"),
    ("responses", {"tools": [flat_tool("regex", r"[\ud800]")]}, "/tools/0/format/definition"),
    ("responses", {"tools": [FLAT_TOOL], "tool_choice": {"type": "custom", "name": "walk"}}, "/tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "param"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_cannot_be_called_is_refused(client: httpx.Client, path: str, fields: dict[str, Any], param: str) -> None:
    answer = ask(client, path, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
