"""JSON Schemas inside Lark grammars."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrain.engine import DUMPS_LAYOUT, GrammarCache, JsonLayout, LaidOutSchema, Vocabulary, compile_lark
from constrain.errors import GrammarError, LarkError, ResourceLimit

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


def test_report_has_positions_of_schemas(byte_vocab: Vocabulary) -> None:
    report = compile_lark('start: "x"\n  | %json {"items": {"type": "integer"}, "minItems": 1}', byte_vocab).report
    place = "%json at line 2, column 5"
    assert [(entry.document, entry.pointer, entry.keyword) for entry in report.narrowed] == [(place, "/items", "type")]
    assert {(entry.document, entry.keyword) for entry in report.enforced} == {(place, "items"), (place, "minItems")}


def test_cached_in_a_file(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    for _ in range(2):  # the second one is read from the file
        grammar = GrammarCache(directory=tmp_path).compile(compile_lark, CALLS, byte_vocab)
        assert grammar.accepts('call f{"id": 1}') and not grammar.accepts('call f{"id": "1"}')
    assert len(list(tmp_path.iterdir())) == 1


def test_documents_of_a_named_schema_have_its_layout(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    pair = {"properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": False}
    grammars = {"x": LaidOutSchema(pair, DUMPS_LAYOUT), "y": LaidOutSchema(pair, JsonLayout("compact", "any", "any"))}
    for _ in range(2):  # the second one is read from the file
        cache = GrammarCache(directory=tmp_path)
        grammar = cache.compile(compile_lark, 'start: "x" @x | "y" @y', byte_vocab, grammars=grammars)
        assert all(map(grammar.accepts, ['x{"a": 1, "b": 2}', 'y{"a":1}', 'y{"b":2,"a":1.0}']))
        assert not any(map(grammar.accepts, ['x{"b": 2, "a": 1}', 'x{"a": 1.0}', 'x{\n"a": 1}', 'y{"a": 1}']))
    assert len(list(tmp_path.iterdir())) == 1


def test_inline_schemas_have_the_layout_of_the_call(tmp_path: Path, byte_vocab: Vocabulary) -> None:
    pair = '%json {"properties": {"a": {"type": "integer"}, "b": {}}, "additionalProperties": false}'
    grammars = {"x": f"start: {pair}", "y": {"type": "array"}, "z": LaidOutSchema({"type": "array"}, JsonLayout())}
    options = {"grammars": grammars, "layout": JsonLayout("compact", "schema", "plain")}
    free = compile_lark(f'start: {pair} | "x" @x | "y" @y | "z" @z', byte_vocab, grammars=grammars)
    for _ in range(2):  # the second one is read from the file
        cache = GrammarCache(directory=tmp_path)
        grammar = cache.compile(compile_lark, f'start: {pair} | "x" @x | "y" @y | "z" @z', byte_vocab, **options)
        assert all(map(grammar.accepts, ['{"a":1,"b":2}', 'x{"a":1,"b":2}', "y[1,2]", "z[1, 2]"]))
        wide = ['{"a": 1}', '{"b":2,"a":1}', 'x{"a": 1}', 'x{"b":2,"a":1}', "y[1, 2]"]
        assert all(map(free.accepts, wide)) and not any(map(grammar.accepts, wide))


def test_layouts_have_known_policies(byte_vocab: Vocabulary) -> None:
    for options in ({"whitespace": True}, {"property_order": "sorted"}, {"integers": "long"}):
        with pytest.raises(GrammarError, match=str(next(iter(options.values())))):
            JsonLayout(**options)
    for schema, layout, reason in (([], JsonLayout(), "@x"), (True, JsonLayout("wide"), "white ?space policy 'wide'")):
        with pytest.raises(LarkError, match=reason):
            compile_lark("start: @x", byte_vocab, grammars={"x": LaidOutSchema(schema, layout)})


def test_schema_that_turns_out_to_have_no_documents_is_no_way_on(byte_vocab: Vocabulary) -> None:
    flags = '%json {"items": {"type": "boolean"}, "type": "array", "minItems": 3, "uniqueItems": true}'
    grammar = compile_lark(f'start: "a" {flags} | "b"', byte_vocab)
    assert grammar.accepts("b")
    assert not grammar.matcher().accept_bytes(b"a")


def test_limits_hold_for_schemas(byte_vocab: Vocabulary) -> None:
    deep = '{"items": ' * 600 + "{}" + "}" * 600
    with pytest.raises(ResourceLimit, match="max_nesting"):
        compile_lark(f"start: %json {deep}", byte_vocab)
