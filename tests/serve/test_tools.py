"""Calls of functions in the forms of the families of models: written by their grammars, and read back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from call_forms import VOCABULARY, calls_of, text_of

from constrain.serve.conversation import for_template
from constrain.serve.errors import APIError
from constrain.serve.formats import OutputFormat
from constrain.serve.protocol.chat import CalledFunction, Message, ToolCall
from constrain.serve.tools import FORMS, CallForm, Function, ToolChoice, answer_format, choose_form
from constrain.serve.tools.reader import AnswerReader, Part
from constrain.tokenizer.chat import ChatTemplate

#: Conversations with calls, rendered by the chat template of each family.
TEMPLATES = Path(__file__).parent / "chat_templates"
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "hours": {"type": "array", "items": {"type": ["string", "null"]}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTIONS = (
    Function("get_weather", WEATHER, "/tools/0/function/parameters"),
    Function("a.now", {"type": "object", "additionalProperties": False}, "/tools/1/function/parameters"),
)


def random_call(rng: random.Random) -> tuple[str, dict[str, Any]]:
    if rng.random() < 0.2:
        return "a.now", {}
    text = "".join(rng.choice('abäß \n"\\{}[]<>/:,') for _ in range(rng.randint(0, 12)))
    note = rng.choice([None, text, "null and void"])
    optional = {"days": rng.randint(-9, 999), "unit": rng.choice("CF"), "hours": [text, None], "note": note}
    chosen = {name: value for name, value in optional.items() if rng.random() < 0.5}
    return "get_weather", {"city": text, **chosen}


def written(form: CallForm, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as a model of the family writes them: as its chat template does."""
    name = next(name for name, each in FORMS.items() if each is form)
    listed = [
        ToolCall(id=f"call_{number}", function=CalledFunction(name=each, arguments=json.dumps(arguments)))
        for number, (each, arguments) in enumerate(calls)
    ]
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source).render(for_template([Message(role="assistant", tool_calls=listed)], form), {})


def read(form: CallForm, text: str, step: int) -> list[Part]:
    reader = AnswerReader(form, ToolChoice(FUNCTIONS), form.reasoning)
    parts = [part for start in range(0, len(text), step) for part in reader.feed(text[start : start + step])]
    return parts + reader.feed("", is_last=True)


@pytest.mark.parametrize("name", FORMS)
def test_random_calls_of_chat_templates_are_allowed_and_read_back(name: str, request: pytest.FixtureRequest) -> None:
    form, rng = FORMS[name], random.Random(name)
    grammar = answer_format(form, ToolChoice(FUNCTIONS), None, VOCABULARY)
    assert grammar is not None
    compiled = grammar.compile(VOCABULARY)
    for number in range(round(50 * request.config.getoption("--samples"))):
        calls = [random_call(rng) for _ in range(rng.randint(1, 3) if form.parallel else 1)]
        before = "" if form.content_opening else rng.choice(["", "Let me see. <t\n"])
        thoughts = f"{form.reasoning[0]}hmm{form.reasoning[1]}" if form.reasoning else ""
        text = thoughts + before + written(form, calls)
        assert compiled.accepts(text, special_tokens=True), text
        parts = read(form, text, rng.choice([1, 2, 7, len(text)]))
        assert calls_of(parts) == calls, number
        assert text_of(parts) == before
        assert text_of(parts, "reasoning") == ("hmm" if thoughts else "")


@pytest.mark.parametrize(("name", "expected"), [("mistral", "000000001"), ("kimi-k2", "functions.two:1"), ("glm", "b")])
def test_ids_of_calls_are_those_that_the_template_wants(name: str, expected: str) -> None:
    calls = [
        ToolCall(id=each, function=CalledFunction(name=called, arguments="{}"))
        for each, called in (("a", "one"), ("b", "two"))
    ]
    messages = [
        *(Message(role="assistant", tool_calls=[call]) for call in calls),
        Message(role="tool", tool_call_id="b", content="12"),
    ]
    rendered = for_template(messages, FORMS[name])
    assert [rendered[1]["tool_calls"][0]["id"], rendered[2]["tool_call_id"]] == [expected] * 2


@pytest.mark.parametrize("name", FORMS)
def test_only_calls_of_the_functions_can_be_begun(name: str) -> None:
    form = FORMS[name]
    grammar = answer_format(form, ToolChoice(FUNCTIONS), None, VOCABULARY)
    assert grammar is not None
    compiled = grammar.compile(VOCABULARY)
    accepts = {
        text: compiled.accepts(form.content_opening + text, special_tokens=True)
        for text in ("", "Hello", f"x {form.trigger}", f"x {form.trigger} y")
    }
    assert list(accepts.values()) == [True, True, False, False]
    assert not compiled.accepts(written(form, [("get_wether", {"city": ""})]), special_tokens=True)
    assert not compiled.accepts(written(form, [("get_weather", {"days": 1})]), special_tokens=True)


@pytest.mark.parametrize("name", FORMS)
def test_choices_of_tools(name: str) -> None:
    form = FORMS[name]
    now, twice = [("a.now", {})], [("a.now", {}), ("a.now", {})]

    def accepted(choice: ToolChoice | None, content: OutputFormat | None, text: str) -> bool:
        grammar = answer_format(form, choice, content, VOCABULARY)
        assert grammar is not None
        return grammar.compile(VOCABULARY).accepts(text, special_tokens=True)

    required = ToolChoice(FUNCTIONS, required=True)
    assert accepted(required, None, written(form, now))
    assert not accepted(required, None, form.content_opening + "Hello")
    assert accepted(ToolChoice(FUNCTIONS), None, written(form, twice)) == form.parallel
    assert not accepted(ToolChoice(FUNCTIONS, parallel=False), None, written(form, twice))
    number = OutputFormat({"type": "integer"})
    assert accepted(ToolChoice(FUNCTIONS), number, form.content_opening + "12")
    assert accepted(ToolChoice(FUNCTIONS), number, written(form, now))
    assert not accepted(ToolChoice(FUNCTIONS), number, form.content_opening + "twelve")


@pytest.mark.parametrize("name", FORMS)
def test_arguments_are_laid_out_as_documents_are(name: str) -> None:
    form = FORMS[name]
    pair = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": False}
    arguments = {"type": "object", "properties": {"pair": pair}, "required": ["pair"], "additionalProperties": False}
    grammar = answer_format(form, ToolChoice((Function("f", arguments, ""),)), None, VOCABULARY)
    assert grammar is not None
    documents = ('{"a": 1, "b": 2}', '{"a":1,"b":2}', '{"b": 2, "a": 1}', '{"a": 1.0}', '{\n  "a": 1\n}', '{"a":  1}')
    alone, called = OutputFormat(pair).compile(VOCABULARY), grammar.compile(VOCABULARY)
    before_key, after_key, before_value, after = form.tags
    before = f"{before_key}pair{after_key}{before_value}"
    before, after = (before, after) if form.arguments == "tags" else ('{"pair": ', "}")
    for text in documents:
        call = form.written([("f", before + text + after)])
        accepted = [alone.accepts(text), called.accepts(call, special_tokens=True)]
        assert accepted == [text in documents[:2]] * 2, text


def test_functions_with_like_schemas_keep_their_own() -> None:
    schemas = ({"properties": {"a": {"const": 1}, "b": {}}}, {"properties": {"b": {}, "a": {"const": True}}})
    functions = tuple(Function(f"f{i}", {"type": "object", **schema}, "") for i, schema in enumerate(schemas))
    form = FORMS["hermes"]
    grammar = answer_format(form, ToolChoice(functions), None, VOCABULARY)
    assert grammar is not None
    compiled = grammar.compile(VOCABULARY)
    for arguments, function in (('{"a": 1, "b": 2}', 0), ('{"b": 2, "a": true}', 1)):
        accepted = [compiled.accepts(form.written([(each.name, arguments)])) for each in functions]
        assert accepted == [number == function for number in range(2)]


def test_constants_are_those_of_json_or_of_python() -> None:
    kinds: dict[str, Any] = {"now": {"type": "boolean"}, "limit": {"type": ["integer", "null"]}}
    schema = {"type": "object", "properties": kinds, "required": ["now", "limit"], "additionalProperties": False}
    choice = ToolChoice((Function("f", schema, ""),))
    for name, accepts_python in (("qwen3-coder", True), ("glm", False)):
        form = FORMS[name]
        grammar = answer_format(form, choice, None, VOCABULARY)
        assert grammar is not None
        compiled = grammar.compile(VOCABULARY)
        before_key, after_key, before_value, after_value = form.tags
        for now, limit in (("true", "null"), ("True", "None"), ("False", "3")):
            pairs = (f"{before_key}{key}{after_key}{before_value}{value}{after_value}"
                     for key, value in (("now", now), ("limit", limit)))  # fmt: skip
            text = form.written([("f", "".join(pairs))])
            assert compiled.accepts(text, special_tokens=True) == (accepts_python or now == "true"), text
            if accepts_python:
                reader = AnswerReader(form, choice)
                expected = {"now": now.lower() == "true", "limit": 3 if limit == "3" else None}
                assert calls_of([*reader.feed(text), *reader.feed("", is_last=True)]) == [("f", expected)]


def test_arguments_between_tags_refuse_what_they_cannot_enforce() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "pattern": "a"}}}
    choice = ToolChoice((Function("f", schema, "/tools/0/parameters"),))
    with pytest.raises(APIError) as caught:
        answer_format(FORMS["glm"], choice, None, VOCABULARY)
    assert caught.value.param == "/tools/0/parameters/properties/city/pattern"


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_found_by_chat_templates(name: str) -> None:
    assert choose_form((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")) is FORMS[name]
    assert choose_form("") is FORMS["hermes"]


def test_thoughts_are_divided_from_text() -> None:
    form, marks = FORMS["hermes"], ("<think>", "</think>")
    for step in (1, 3, 100):
        for text, is_thinking in (("<think>\nwhy\n</think>\n\nyes", False), ("why\n</think>\n\nyes", True)):
            reader = AnswerReader(form, None, marks, is_thinking)
            parts = [part for start in range(0, len(text), step) for part in reader.feed(text[start : start + step])]
            parts += reader.feed("", is_last=True)
            assert (text_of(parts, "reasoning").strip(), text_of(parts)) == ("why", "yes")
    reader = AnswerReader(form, None, marks)
    assert text_of(reader.feed("<thin") + reader.feed("gs>") + reader.feed("", True)) == "<things>"
