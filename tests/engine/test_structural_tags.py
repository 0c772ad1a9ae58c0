"""Structural tags in both notations."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from constrain.engine import DUMPS_LAYOUT, CompiledGrammar, JsonLayout, compile_structural_tag
from constrain.errors import StructuralTagError
from constrain.testing import small_vocabulary

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": CITY}
WORD = {"type": "regex", "pattern": "[a-z]+"}


def compiled(format: Any) -> CompiledGrammar:
    return compile_structural_tag({"type": "structural_tag", "format": format}, small_vocabulary())


def check(format: Any, accepted: list[str], refused: list[str]) -> None:
    grammar = compiled(format)
    assert [text for text in accepted if not grammar.accepts(text, special_tokens=True)] == []
    assert [text for text in refused if grammar.accepts(text, special_tokens=True)] == []


def test_triggers_begin_tags_only() -> None:
    tag = {"structures": [{"begin": "<f=w>", "schema": CITY, "end": "</f>"}], "triggers": ["<f="]}
    grammar = compile_structural_tag(tag, small_vocabulary())
    for text in ("", "Hi <b>!", '<f=w>{"city": "Oslo"}</f>', 'a <f=w>{"city":"Rome"}</f> b <f=w>{"city":"Oslo"}</f>'):
        assert grammar.accepts(text), text
    for text in ("a <f=", "<f=v>", '<f=w>{"city": "Bern"}</f>', '<f=w>{"city": "Oslo"}'):
        assert not grammar.accepts(text), text


def test_formats_of_fixed_parts() -> None:
    check({"type": "const_string", "value": 'a"b'}, ['a"b'], ["", "a"])
    check(SCHEMA, ['{"city": "Oslo"}'], ["{}"])
    check(WORD, ["abc"], ["", "a1"])
    check({"type": "grammar", "grammar": 'start: "x" /[0-9]/'}, ["x1"], ["x"])
    check({"type": "grammar", "grammar": 'start: "x" /[0-9]/', "syntax": "lark"}, ["x1"], ["x"])
    check({"type": "grammar", "grammar": 'root ::= "x" [0-9]+', "syntax": "ebnf"}, ["x12"], ["x"])
    check({"type": "sequence", "elements": [WORD, {"type": "const_string", "value": "!"}]}, ["a!"], ["a", "!"])
    check({"type": "or", "elements": [WORD, {"type": "const_string", "value": "!"}]}, ["a", "!"], ["a!"])


def test_repetition() -> None:
    one = {"type": "const_string", "value": "ab"}
    check({"type": "optional", "content": one}, ["", "ab"], ["abab"])
    check({"type": "star", "content": one}, ["", "ab", "ababab"], ["a"])
    check({"type": "plus", "content": one}, ["ab", "abab"], [""])
    check({"type": "repeat", "min": 1, "max": 2, "content": one}, ["ab", "abab"], ["", "ababab"])
    check({"type": "repeat", "min": 2, "max": -1, "content": one}, ["abab", "ab" * 5], ["ab"])


def test_tags() -> None:
    tag = {"begin": "<t>", "content": {"type": "any_text"}, "end": ["</t>", "<end>"]}
    check({"type": "tag", **tag}, ["<t></t>", "<t>a b<end>"], ["<t>a", "<t></t></t>"])
    words = {"type": "tags_with_separator", "tags": [{"begin": "(", "content": WORD, "end": ")"}], "separator": ", "}
    check(words, ["", "(a)", "(a), (b)"], ["(a)(b)", "(a), "])
    check({**words, "at_least_one": True, "stop_after_first": True}, ["(a)"], ["", "(a), (b)"])


def test_tags_after_text() -> None:
    tags = {"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"begin": "<f>", "content": WORD, "end": "</f>"}]}
    check(tags, ["", "hm", "<f>a</f>", "a <f>b</f> c"], ["<f>", "<f>1</f>"])
    check({**tags, "at_least_one": True}, ["<f>a</f>", "<f>b</f>c<f>d</f>e"], ["", "a", "a<f>b</f>"])
    check({**tags, "stop_after_first": True}, ["", "a", "a<f>b</f>"], ["<f>b</f>c"])
    check({**tags, "at_least_one": True, "stop_after_first": True}, ["<f>b</f>"], ["", "a<f>b</f>", "<f>b</f>c"])
    check({**tags, "excludes": ["bad"]}, ["good <f>bad</f>"], ["bad"])


def test_dispatch() -> None:
    rules = {"type": "dispatch", "rules": [["#", WORD], ["$", {"type": "regex", "pattern": "[0-9]"}]]}
    check(rules, ["", "A", "#a", "1#a1$2 B"], ["#", "#1", "$a"])
    check({**rules, "loop": False, "excludes": ["!"]}, ["", "A", "A#a"], ["#a 1", "#a$1", "!"])


def test_text_in_a_tag_goes_on_up_to_its_first_end() -> None:
    tag = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": ["aa", "ba"]}
    check(tag, ["aa", "ba", "xaa", "bba"], ["", "a", "aaa", "baa", "xaaa", "aba "])
    lines = {"type": "sequence", "elements": [tag, {"type": "any_text", "max_chars": 2}]}
    check(lines, ["xaa", "aaa", "xaaaa"], ["xaaaaa", "x"])
    inner = {"type": "triggered_tags", "triggers": ["<f"], "tags": [{"begin": "<f>", "content": WORD, "end": "/"}]}
    outer = {"type": "tag", "begin": "<o>", "content": inner, "end": "f</o>"}
    check(outer, ["<o>f</o>", "<o>a <f>b/ <f</o>"[:-6] + "f</o>"], ["<o><f</o>", "<o>f</o>f</o>", "<o><f>a</o>"])


def test_each_end_of_a_tag_is_after_its_own_text() -> None:
    """The text `b` cannot be before `>b`, because `b>` is a trigger, but before `a`."""
    inner = {"type": "triggered_tags", "triggers": ["b>"], "tags": [{"begin": "b>", "content": WORD, "end": "."}]}
    check({"type": "tag", "begin": "", "content": inner, "end": [">b", "a"]}, ["ba", "c>b", "b>x.a"], ["b>b"])


def test_special_tokens_are_tokens() -> None:
    tag = {"type": "tag", "begin": "<|record|>a", "content": WORD, "end": {"type": "token", "token": "<|text|>"}}
    check(tag, ["<|record|>abc<|text|>"], ["<|record|>abc"])
    assert not compiled(tag).accepts("<|record|>abc<|text|>")


def test_tags_of_tokens() -> None:
    record, text = {"type": "token", "token": "<|record|>"}, {"type": "token", "token": "<|text|>"}
    tags = {"trigger_tokens": ["<|record|>"], "tags": [{"begin": record, "content": WORD, "end": text}]}
    format = {"type": "token_triggered_tags", "exclude_tokens": ["<|schema|>", "<eos>"], **tags}
    check(format, ["", "a<|text|>", "a<|record|>b<|text|>c"], ["<|record|>", "<|schema|>", "<|record|>1<|text|>"])
    check({**format, "at_least_one": True, "stop_after_first": True}, ["<|record|>b<|text|>"], ["", "a"])
    rules = {"type": "token_dispatch", "rules": [["<|record|>", WORD]], "loop": False}
    check(rules, ["", "<|text|>", "1<|record|>b"], ["<|record|>1", "<|record|>b "])
    thoughts = {"type": "tag", "begin": record, "content": {"type": "any_tokens"}, "end": text}
    check(thoughts, ["<|record|>a<|schema|>b<|text|>"], ["<|record|>a"])


MEMBERS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "size": {"type": "integer", "minimum": 1},
        "note": {"anyOf": [{"$ref": "#/$defs/note"}, {"type": "null"}]},
        "kind": {"enum": ["a", 1]},
    },
    "required": ["name", "size"],
    "$defs": {"note": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("style", "name", "size", "note", "kind"),
    [
        (
            "qwen_xml",
            "<parameter=name>%s</parameter>",
            "<parameter=size>%s</parameter>",
            "<parameter=note>%s</parameter>",
            "<parameter=kind>%s</parameter>",
        ),
        (
            "minimax_xml",
            '<parameter name="name">%s</parameter>',
            '<parameter name="size">%s</parameter>',
            '<parameter name="note">%s</parameter>',
            '<parameter name="kind">%s</parameter>',
        ),
        (
            "deepseek_xml",
            '<｜DSML｜parameter name="name" string="true">%s</｜DSML｜parameter>',
            '<｜DSML｜parameter name="size" string="false">%s</｜DSML｜parameter>',
            '<｜DSML｜parameter name="note" string="true">%s</｜DSML｜parameter>',
            '<｜DSML｜parameter name="kind" string="false">%s</｜DSML｜parameter>',
        ),
        (
            "deepseek_v4_1_xml",
            '<｜DSML｜ parameter name="name" string="true">%s</｜DSML｜ parameter>',
            '<｜DSML｜ parameter name="size" string="false">%s</｜DSML｜ parameter>',
            '<｜DSML｜ parameter name="note" string="true">%s</｜DSML｜ parameter>',
            '<｜DSML｜ parameter name="kind" string="false">%s</｜DSML｜ parameter>',
        ),
        (
            "cohere_xml",
            '<cofl:value name="name" type="raw">%s</cofl:value>',
            '<cofl:value name="size" type="json">%s</cofl:value>',
            '<cofl:value name="note" type="raw">%s</cofl:value>',
            '<cofl:value name="kind" type="json">%s</cofl:value>',
        ),
        (
            "glm_xml",
            "<arg_key>name</arg_key><arg_value>%s</arg_value>",
            "<arg_key>size</arg_key>\n<arg_value>%s</arg_value>",
            "<arg_key>note</arg_key><arg_value>%s</arg_value>",
            "<arg_key>kind</arg_key><arg_value>%s</arg_value>",
        ),
        (
            "kimi_k3_xml",
            '<|open|>argument key="name" type="string"<|sep|>%s<|close|>argument<|sep|>',
            '<|open|>argument key="size" type="integer"<|sep|>%s<|close|>argument<|sep|>',
            '<|open|>argument key="note" type="string"<|sep|>%s<|close|>argument<|sep|>',
            '<|open|>argument key="kind" type="number"<|sep|>%s<|close|>argument<|sep|>',
        ),
    ],
)
def test_parameters_between_tags(style: str, name: str, size: str, note: str, kind: str) -> None:
    format = {"type": "json_schema", "json_schema": MEMBERS, "style": style}
    required = name % "a<b" + size % "12"
    check(
        format,
        [required, f"\n{name % ''}\n{size % ' 3 '}\n", required + note % 'say "x"\n' + kind % "1"],
        [name % "a", size % "12", size % "1" + name % "a", name % "abcd" + size % "1", name % "a" + size % "0"],
    )
    assert not compiled(format).accepts(required + kind % '"a"', special_tokens=True)


@pytest.mark.parametrize("schema", [True, {}, {"description": "any"}])
@pytest.mark.parametrize(
    ("style", "text", "number"),
    [
        ("qwen_xml", "<parameter=%s>%s</parameter>", "<parameter=%s>%s</parameter>"),
        ("minimax_xml", '<parameter name="%s">%s</parameter>', '<parameter name="%s">%s</parameter>'),
        (
            "deepseek_xml",
            '<｜DSML｜parameter name="%s" string="true">%s</｜DSML｜parameter>',
            '<｜DSML｜parameter name="%s" string="false">%s</｜DSML｜parameter>',
        ),
        (
            "cohere_xml",
            '<cofl:value name="%s" type="raw">%s</cofl:value>',
            '<cofl:value name="%s" type="json">%s</cofl:value>',
        ),
        (
            "glm_xml",
            "<arg_key>%s</arg_key><arg_value>%s</arg_value>",
            "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>",
        ),
        (
            "kimi_k3_xml",
            '<|open|>argument key="%s" type="string"<|sep|>%s<|close|>argument<|sep|>',
            '<|open|>argument key="%s" type="integer"<|sep|>%s<|close|>argument<|sep|>',
        ),
    ],
)
def test_without_a_schema_any_parameters_are_written(schema: Any, style: str, text: str, number: str) -> None:
    check(
        {"type": "json_schema", "json_schema": schema, "style": style},
        ["", text % ("a", "x < y\n"), f"{text % ('first name', '')}\n{number % ('b', '12')}\n"],
        [text % ("", "x"), text % ("a\nb", "x"), text % ('a"b', "x"), text % ("a", "x") + "x"],
    )


def test_values_between_tags_are_texts_or_json() -> None:
    def value(schema: Any) -> dict[str, Any]:
        return {"type": "qwen_xml_parameter", "json_schema": {"properties": {"a": schema}, "required": ["a"]}}

    def written(*values: str) -> list[str]:
        return [f"<parameter=a>{value}</parameter>" for value in values]

    check(value({"type": ["integer", "boolean"]}), written("1", "true"), written("x", "1.5", ""))
    check(value({"type": ["string", "null"], "maxLength": 1}), written("", "x", "null"), written("xy"))
    check(value({"type": "array", "items": {"type": "string"}}), written('["x"]', "\n[]\n"), written("x"))
    check(value({"enum": ["x y", None]}), written("x y", "null"), written("x", '"x y"'))
    check(value({"const": "x"}), written("x"), written('"x"', "y"))
    color = {"enum": ["red", "light blue"], "type": "string", "title": "Color"}
    optional = {"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}], "description": "of the car"}
    schema = {"properties": {"a": optional}, "required": ["a"], "$defs": {"color": color}}
    references = {"type": "qwen_xml_parameter", "json_schema": schema}
    check(references, written("light blue", "null"), written('"red"', "blue", ""))
    check(value({"type": "integer", "enum": [1, 2, "1"]}), written("1", "2"), written("3"))
    check(value(True), written("", "x", "<b>", "</paramete"), ["<parameter=a></parameter></parameter>"])
    check(value({"type": "string"}), written("<</parameter"), written("</parameter>"))


def test_thinking_before_an_answer() -> None:
    think = {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"}
    check(
        {"type": "sequence", "elements": [think, SCHEMA]}, ['<think>well</think>{"city": "Oslo"}'], ['{"city": "Oslo"}']
    )


PAIR = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "additionalProperties": False}
#: Layouts of a document, by name.
PAIRS = {
    "compact": '{"a":1,"b":2}',
    "single": '{"a": 1, "b": 2}',
    "lines": '{\n  "a": 1,\n  "b": 2\n}',
    "order": '{"b":2,"a":1}',
    "fraction": '{"a":1.0,"b":2}',
}


@pytest.mark.parametrize(
    ("fields", "layout", "expected"),
    [
        ({}, None, "compact single lines order"),
        ({}, DUMPS_LAYOUT, "compact single"),
        ({}, JsonLayout("compact", "any", "any"), "compact order fraction"),
        ({}, JsonLayout(2, "schema"), "lines"),
        ({"any_order": False}, None, "compact single lines"),
        ({"any_order": True}, DUMPS_LAYOUT, "compact single order"),
        ({"max_whitespace_cnt": 0}, None, "compact order"),
        ({"max_whitespace_cnt": 1}, None, "compact single order"),
        ({"max_whitespace_cnt": 42}, None, "compact single lines order"),
        ({"max_whitespace_cnt": 0}, DUMPS_LAYOUT, "compact"),
        ({"max_whitespace_cnt": 50}, DUMPS_LAYOUT, "compact single"),
        ({"max_whitespace_cnt": 50}, JsonLayout("any"), "compact single order fraction"),
    ],
)
def test_layouts_of_documents(fields: dict[str, Any], layout: JsonLayout | None, expected: str) -> None:
    options = {} if layout is None else {"layout": layout}
    format = {"type": "json_schema", "json_schema": PAIR, **fields}
    grammar = compile_structural_tag({"format": format}, small_vocabulary(), **options)
    assert [name for name, text in PAIRS.items() if grammar.accepts(text)] == expected.split()


def test_layouts_hold_in_all_notations() -> None:
    structures = {"structures": [{"begin": "<f>", "schema": PAIR, "end": "</f>"}], "triggers": ["<f>"]}
    nested = {"properties": {"pair": PAIR}, "required": ["pair"]}
    ways: list[tuple[dict[str, Any], str]] = [
        (structures, "<f>{}</f>"),
        ({"format": {"type": "qwen_xml_parameter", "json_schema": nested}}, "<parameter=pair>{}</parameter>"),
        ({"format": {"type": "json_schema", "style": "glm_xml", "json_schema": nested}},
         "<arg_key>pair</arg_key><arg_value>{}</arg_value>"),
    ]  # fmt: skip
    for tag, around in ways:
        grammar = compile_structural_tag(tag, small_vocabulary(), layout=DUMPS_LAYOUT)
        found = [name for name, text in PAIRS.items() if grammar.accepts(around.format(text))]
        assert found == ["compact", "single"], tag


def test_defaults_that_are_written_out_ask_for_nothing() -> None:
    others = {"required": None, "additionalProperties": {}}
    empty = {"type": "object", "properties": {"a": {"type": "integer"}}, **others}
    check({"type": "qwen_xml_parameter", "json_schema": empty}, [""], ["a"])
    check({"type": "any_text", "excludes": [], "max_tokens": None}, ["abc"], [])
    check({**SCHEMA, "excludes": ["<|text|>"]}, ['{"city": "Rome"}'], ["<|text|>"])
    check({**SCHEMA, "style": "json", "any_order": False, "excludes": []}, ['{"city": "Rome"}'], [])


@pytest.mark.parametrize(
    ("format", "pointer", "reason"),
    [
        ({"type": "mystery"}, "/format/type", "'mystery' is not one of the known formats"),
        ({"type": []}, "/format/type", "not one of the known formats"),
        ({"type": "any_text", "excludes": ["a", "\ud800"]}, "/format/excludes/1", "lone surrogate"),
        ({"type": "const_string", "value": "\ud800"}, "/format/value", "lone surrogate"),
        ({"type": "any_text", "max_tokens": 3}, "/format/max_tokens", "no property of a text"),
        ({"type": "any_text", "max_chars": -1}, "/format/max_chars", "at least 0"),
        ({"type": "any_text", "min_chars": 1}, "/format/min_chars", "not known"),
        ({"type": "exclude_token", "exclude_tokens": []}, "/format/type", "any_tokens"),
        ({"type": "any_tokens", "exclude_tokens": ["a"]}, "/format/exclude_tokens/0", "not one of the special tokens"),
        ({"type": "star", "content": {"type": "any_text"}}, "/format/content", "cannot be repeated"),
        ({"type": "repeat", "min": 2, "max": 1, "content": WORD}, "/format/max", "at least 'min'"),
        ({"type": "dispatch", "rules": [["", WORD]]}, "/format/rules", "not empty"),
        ({"type": "dispatch", "rules": [["a", {"type": "regex"}]]}, "/format/rules/0/1", "'pattern' is missing"),
        ({"type": "token_dispatch", "rules": [["<no>", WORD]]}, "/format/rules/0/0", "special tokens"),
        ({"begin": "a", "content": WORD, "end": []}, "/format/end", "at least one end"),
        ({**SCHEMA, "excludes": ["<|text|>", "a"]}, "/format/excludes/1", "only special tokens"),
        ({**SCHEMA, "max_whitespace_cnt": -1}, "/format/max_whitespace_cnt", "at least 0"),
        ({**SCHEMA, "any_order": 1}, "/format/any_order", "true or false"),
        ({**SCHEMA, "style": "minimax_m3_xml"}, "/format/style", "'minimax_m3_xml' is not one of the styles"),
        (
            {"type": "json_schema", "style": "cohere_xml", "json_schema": {"properties": {"a": {"type": "array"}}}},
            "/format/json_schema/properties/a",
            "values without parts",
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": {"properties": {"a/b": {"type": "string", "pattern": "x"}}}},
            "/format/json_schema/properties/a~1b/pattern",
            "as they are",
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": {"properties": {"a": {"type": "intger"}}}},
            "/format/json_schema/properties/a",
            "no type 'intger'",
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": {"properties": {}, "minProperties": 1}},
            "/format/json_schema/minProperties",
            "cannot be enforced",
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": {"properties": {"a": {"enum": []}}}},
            "/format/json_schema/properties/a",
            "no value is valid",
        ),
        (
            {
                "type": "qwen_xml_parameter",
                "json_schema": {"properties": {"a": {"type": "string", "minLength": 2, "maxLength": 1}}},
            },
            "/format/json_schema/properties/a/maxLength",
            "at least 2",
        ),
        (
            {"type": "qwen_xml_parameter", "json_schema": {"required": ["a"]}},
            "/format/json_schema/required",
            "not one of the properties",
        ),
        (
            {
                "type": "token_triggered_tags",
                "trigger_tokens": ["<|record|>"],
                "tags": [{"begin": {"type": "token", "token": "<|text|>"}, "content": WORD, "end": ""}],
            },
            "/format/trigger_tokens",
            "none of the triggers",
        ),
        ({"type": "regex"}, "/format", "'pattern' is missing"),
        ({"type": "regex", "pattern": 1}, "/format/pattern", "must be a text"),
        ({"type": "regex", "pattern": "(a"}, "/format/pattern", "not a regular expression"),
        (
            {"type": "sequence", "elements": [WORD, {"type": "regex", "pattern": r"(a)\1"}]},
            "/format/elements/1/pattern",
            "backref",
        ),
        ({"type": "json_schema", "json_schema": {"type": "strin"}}, "/format/json_schema", "there is no type 'strin'"),
        ({"type": "json_schema", "json_schema": False, "style": "qwen_xml"}, "/format/json_schema", "of an object"),
        ({"type": "grammar", "grammar": "start: missing"}, "/format/grammar", "missing"),
        ({"type": "grammar", "grammar": "start: /x/", "syntax": "bnf"}, "/format/syntax", "neither 'ebnf' nor 'lark'"),
        ({"type": "grammar", "grammar": "root ::= ["}, "/format/grammar", "GBNF"),
        ({"type": "token", "token": "<nope>"}, "/format/token", "not one of the special tokens"),
        ({"type": "or", "elements": []}, "/format/elements", "at least one"),
        ({"begin": "a", "content": WORD, "end": 3}, "/format/end", "a text or a token"),
        (
            {"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"begin": "g", "content": WORD, "end": ""}]},
            "/format/triggers",
            "none of the triggers",
        ),
        ("text", "/format", "must be an object|is an object"),
    ],
)
def test_mistakes_have_a_pointer(format: Any, pointer: str, reason: str) -> None:
    with pytest.raises(StructuralTagError, match=reason) as caught:
        compiled(format)
    assert caught.value.pointer == pointer


def test_neither_notation() -> None:
    for tag in ({}, {"structures": []}, {"structures": [], "triggers": ["a"]}, []):
        with pytest.raises(StructuralTagError):
            compile_structural_tag(tag, small_vocabulary())  # type: ignore[arg-type]


def followed(text: str, triggers: list[str], tags: list[str]) -> bool:
    """Whether the first trigger that is complete always begins a tag, after which the same holds."""
    ends = ((end, each) for end in range(len(text) + 1) for each in triggers if text[:end].endswith(each))
    first = min((end for end, _ in ends), default=None)
    if first is None:
        return True
    starts = [first - len(each) for each in triggers if text[:first].endswith(each)]
    return any(
        text.startswith(tag, start) and followed(text[start + len(tag) :], triggers, tags)
        for start in starts
        for tag in tags
    )


@pytest.mark.seeds(12)
def test_triggers_that_overlap(seed: int) -> None:
    rng = random.Random(seed)
    words = ["".join(rng.choices("ab", k=rng.randint(1, 3))) for _ in range(rng.randint(1, 2))]
    triggers = [word for word in words if not any(other in word for other in words if other != word)]
    begins = [rng.choice(triggers) + rng.choice(["", "a", "b", "ba"]) for _ in range(2)]
    tags = [{"begin": begin, "content": {"type": "const_string", "value": "-"}, "end": ""} for begin in begins]
    grammar = compiled({"type": "triggered_tags", "triggers": triggers, "tags": tags})
    for length in range(8):
        for letters in product("ab-", repeat=length):
            text = "".join(letters)
            expected = followed(text, triggers, [f"{begin}-" for begin in begins])
            assert grammar.accepts(text) == expected, (triggers, begins, text)


@pytest.mark.parametrize("kind", ["tag", "sequence"])
def test_deep_tags_are_mistakes(kind: str) -> None:
    """A server passes on what its clients send, and would take another exception for a defect of its own."""
    format: Any = {"type": "any_text"}
    for _ in range(600):
        inner = {"elements": [format]} if kind == "sequence" else {"begin": "<a>", "content": format, "end": "</a>"}
        format = {"type": kind, **inner}
    with pytest.raises(StructuralTagError, match="nested too deeply"):
        compiled(format)


def test_long_ends_that_repeat_themselves_are_refused() -> None:
    """Each of their beginnings may be where the text before them cannot end: that took minutes."""
    for end in ("x" * 2_000, "xy" * 60_000):
        with pytest.raises(StructuralTagError, match="too long or too many"):
            compiled({"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": end})
    check({"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": "xx"}, ["<axx"], ["<axxx", "<ax"])
