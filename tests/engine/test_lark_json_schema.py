"""JSON Schemas inside Lark grammars."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrain.engine import GrammarCache, Vocabulary, compile_lark
from constrain.errors import LarkError, ResourceLimit

CALLS = r"""
start: call (";" call)*
call: "call" NAME args   // arguments may be left out: %json {}
args: %json {
  "type": "object",
  "properties": {"id": {"type": "integer"}, "next": {"$ref": "#"}},
  "additionalProperties": false,
  "description": "\"%json\" // as in a comment"
} | "(" /%json {/ ")" |
NAME: /[a-z]+/
%ignore " "
%ignore /#[^\n]*\n?/
"""


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ('call f{"id": 1}', True),
        ('call f {"next":{"id": 12, "next": {}}} ;call g{}', True),
        (' call f # to be done\n{"id":\n  7} # later', True),
        ("call f", True),
        ("call f(%json {)", True),
        ('call f{"id": "1"}', False),
        ('call f{"id": 1', False),
        ('call f{"id" : 1}', False),
        ('call f # {"id":1}', True),
        ('{"id": 1}', False),
    ],
)
def test_schemas_stand_for_their_documents(text: str, accepted: bool, byte_vocab: Vocabulary) -> None:
    assert compile_lark(CALLS, byte_vocab).accepts(text) == accepted


def test_several_schemas_repeated_and_as_arguments(byte_vocab: Vocabulary) -> None:
    pair = '%json {"enum": ["a", 1]}'
    grammar = compile_lark(
        f'start: list{{one}}~2 | "[" ({pair} ",")~10..20 "]" | %json {{"const": 5}}\none: {pair}\nlist{{x}}: x+ "."',
        byte_vocab,
    )
    assert all(map(grammar.accepts, ['"a"1.1.', "5", "[" + '1,"a",' * 5 + "]"]))
    assert not any(map(grammar.accepts, ['"a"1.', "5.", "[" + '1,"a",' * 4 + "]", "1"]))


def test_what_is_narrowed_is_reported_with_its_place(byte_vocab: Vocabulary) -> None:
    report = compile_lark('start: "x"\n  | %json {"items": {"type": "integer"}, "minItems": 1}', byte_vocab).report
    place = "%json at line 2, column 5"
    assert [(entry.document, entry.pointer, entry.keyword) for entry in report.narrowed] == [(place, "/items", "type")]
    assert {(entry.document, entry.keyword) for entry in report.enforced} == {(place, "items"), (place, "minItems")}


def test_kept_in_a_file(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    for _ in range(2):  # the second one is read from the file
        grammar = GrammarCache(directory=tmp_path).compile(compile_lark, CALLS, byte_vocab)
        assert grammar.accepts('call f{"id": 1}') and not grammar.accepts('call f{"id": "1"}')
    assert len(list(tmp_path.iterdir())) == 1


def test_schema_that_turns_out_to_have_no_documents_is_no_way_on(byte_vocab: Vocabulary) -> None:
    flags = '%json {"items": {"type": "boolean"}, "type": "array", "minItems": 3, "uniqueItems": true}'
    grammar = compile_lark(f'start: "a" {flags} | "b"', byte_vocab)
    assert grammar.accepts("b")
    assert not grammar.matcher().accept_bytes(b"a")


@pytest.mark.parametrize(
    ("grammar", "line", "column", "reason"),
    [
        ('start: "a"\n  | %json', 2, 10, "no JSON Schema after %json"),
        ('start: %json {"type":\n "string",}', 2, 11, "no JSON Schema after %json"),
        ("start: %json {} %json NaN", 1, 23, "JSON has no NaN"),
        ("start: %json" + '{"not":' * 200_000, 1, 13, "nested too deeply"),
        ('start: "a"\n  | %json {"type": "strin"} "b"', 2, 5, "# (type): there is no type 'strin'"),
        ("start: %json {\n} | %json false", 2, 5, "no value satisfies this schema"),
        ('start: A\nA: "a" | %json {}', 2, 10, "belongs in rules"),
        ('start: "a"\n%ignore %json {}', 2, 9, "belongs in rules"),
        ("start: %json {\n\n} & a", 3, 3, "Unexpected input"),
        ('start: "a" %json {"type": "string"}\n%ignore /x("y"z)?/', 1, 12, "ignored text before terminal '%json'"),
        ('start: A %json {}\nA: /a(?!")/', 2, 1, "which may begin with '\"'"),
    ],
)
def test_refused_with_place_and_reason(
    grammar: str, line: int, column: int, reason: str, byte_vocab: Vocabulary
) -> None:
    with pytest.raises(LarkError) as caught:
        compile_lark(grammar, byte_vocab)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)


def test_limits_hold_for_schemas(byte_vocab: Vocabulary) -> None:
    deep = '{"items": ' * 600 + "{}" + "}" * 600
    with pytest.raises(ResourceLimit, match="max_nesting"):
        compile_lark(f"start: %json {deep}", byte_vocab)
