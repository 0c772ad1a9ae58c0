"""The cache of compiled grammars: keys, eviction, and files for other runs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import lark
import pytest
import referencing

from constrain.engine import (
    DUMPS_LAYOUT,
    CompiledGrammar,
    GrammarCache,
    JsonLayout,
    LaidOutSchema,
    Limits,
    Vocabulary,
    allocate_bitmask,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
    compile_structural_tag,
)
from constrain.engine.lark import compose as lark_compose
from constrain.errors import LarkError, RegexError, SchemaError

TAG = {"format": {"type": "json_schema", "json_schema": {}}}
LARK = 'start: "a" [WORD] ("," start)?\nWORD: /[x-z]+/\n%ignore " "'


# ---- In memory.


def test_the_same_constraint_compiles_once(byte_vocab: Vocabulary) -> None:
    cache = GrammarCache()
    schema = {"properties": {"a": {"enum": [1, 2]}}}
    first = cache.compile(compile_json_schema, schema, byte_vocab, whitespace="single")
    again = cache.compile(compile_json_schema, {"properties": {"a": {"enum": (1, 2)}}}, byte_vocab, whitespace="single")
    assert again is first
    assert cache.compile(compile_regex, "a+", byte_vocab) is cache.compile(compile_regex, "a+", byte_vocab)
    assert cache.compile(compile_choices, ["a"], byte_vocab) is cache.compile(compile_choices, ("a",), byte_vocab)
    assert cache.compile(compile_lark, LARK, byte_vocab) is cache.compile(compile_lark, LARK, byte_vocab)
    for _ in range(2):
        grammars = {"x": LaidOutSchema({"enum": [1, 2]}, JsonLayout("single"))}
        cache.compile(compile_lark, "start: @x", byte_vocab, grammars=grammars)
    assert len(cache) == 5
    assert cache.nbytes >= first.nbytes
    cache.clear()
    assert len(cache) == cache.nbytes == 0
    assert cache.compile(compile_json_schema, schema, byte_vocab, whitespace="single") is not first


def test_different_arguments_are_different_entries(byte_vocab: Vocabulary) -> None:
    other_vocabulary = Vocabulary.from_tokens([b"a", b"1", b""], [2])
    registry: referencing.Registry[Any] = referencing.Registry()
    layouts = (JsonLayout(), DUMPS_LAYOUT)
    schemas: tuple[dict[str, Any], ...] = ({"const": 1}, {"const": True})
    named_schemas = [*schemas, *(LaidOutSchema(schema, layout) for schema in schemas for layout in layouts)]
    cache = GrammarCache()
    grammars = [
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab),
        cache.compile(compile_json_schema, {"const": 1}, other_vocabulary),
        cache.compile(compile_json_schema, {"const": True}, byte_vocab),
        cache.compile(compile_json_schema, {"const": "1"}, byte_vocab),
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab, whitespace="any"),
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab, whitespace=1),
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab, lenient=True),
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab, limits=Limits(max_states=1000)),
        cache.compile(compile_json_schema, {"const": 1}, byte_vocab, registry=registry),
        cache.compile(compile_regex, "1", byte_vocab),
        cache.compile(compile_choices, ["1"], byte_vocab),
        cache.compile(compile_lark, 'start: "1"\nother: "2"', byte_vocab),
        cache.compile(compile_lark, 'start: "1"\nother: "2"', byte_vocab, "other"),
        *(cache.compile(compile_lark, "start: @x", byte_vocab, grammars={"x": named}) for named in named_schemas),
        *(cache.compile(compile_structural_tag, TAG, byte_vocab, layout=layout) for layout in layouts),
    ]
    assert len({id(grammar) for grammar in grammars}) == len(grammars) == len(cache)
    assert cache.compile(compile_json_schema, {"const": 1}, byte_vocab, limits=Limits(max_states=1000)) is grammars[7]
    assert cache.compile(compile_json_schema, {"const": 1}, byte_vocab, registry=registry) is grammars[8]


def test_failures_are_raised_every_time_and_not_cached(byte_vocab: Vocabulary) -> None:
    cache = GrammarCache()
    for _ in range(2):
        with pytest.raises(RegexError):
            cache.compile(compile_regex, "(", byte_vocab)
        with pytest.raises(SchemaError):
            cache.compile(compile_json_schema, {"enum": {1, 2}}, byte_vocab)
    assert len(cache) == 0


def test_those_used_least_recently_are_dropped(byte_vocab: Vocabulary) -> None:
    cache = GrammarCache(max_bytes=4 * compile_regex("a", byte_vocab).nbytes)
    cached = [cache.compile(compile_regex, pattern, byte_vocab) for pattern in "abcd"]
    assert len(cache) == 4
    assert cache.compile(compile_regex, "a", byte_vocab) is cached[0]
    cache.compile(compile_regex, "e", byte_vocab)
    assert len(cache) == 4
    assert cache.compile(compile_regex, "a", byte_vocab) is cached[0]
    assert cache.compile(compile_regex, "b", byte_vocab) is not cached[1]


def test_growth_in_use_counts(bpe_vocab: Vocabulary) -> None:
    cache = GrammarCache(max_bytes=100_000)
    grammar = cache.compile(compile_json_schema, {"type": "string", "pattern": "^[a-z]{1,200}x$"}, bpe_vocab)
    matcher, bits = grammar.matcher(), allocate_bitmask(1, bpe_vocab.size)
    assert matcher.accept_bytes(b'"')
    while grammar.nbytes < 100_000:
        matcher.fill_bitmask(bits)
        assert matcher.accept_bytes(b"a")
    cache.compile(compile_regex, "a", bpe_vocab)
    assert len(cache) == 1
    assert matcher.accept_bytes(b'x"'), "a grammar that was dropped can still be used"


def test_a_grammar_larger_than_the_cache_is_not_cached(byte_vocab: Vocabulary) -> None:
    cache = GrammarCache(max_bytes=10)
    assert cache.compile(compile_regex, "a", byte_vocab).accepts("a")
    assert len(cache) == 0


def test_threads_share_one_compilation(byte_vocab: Vocabulary) -> None:
    cache, calls, results = GrammarCache(), [], []

    def slow(source: str, vocab: Vocabulary) -> CompiledGrammar:
        calls.append(source)
        time.sleep(0.05)
        return compile_regex(source, vocab)

    def ask(source: str) -> None:
        results.append(cache.compile(slow, source, byte_vocab))

    threads = [threading.Thread(target=ask, args=("ab"[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == ["a", "b"]
    assert len(results) == 8
    assert len(set(map(id, results))) == 2


# ---- On disk.


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Lark grammars that were parsed."""
    texts: list[str] = []
    load = lark_compose.load
    monkeypatch.setattr(lark_compose, "load", lambda text, known: (texts.append(text), load(text, known))[1])
    return texts


def takes_the_language(grammar: CompiledGrammar) -> bool:
    return grammar.accepts("a xyz , a") and not grammar.accepts("a w") and not grammar.accepts("")


def test_other_runs_need_not_parse(byte_vocab: Vocabulary, bpe_vocab: Vocabulary, tmp_path: Path, parsed: Any) -> None:
    for vocabulary in (byte_vocab, bpe_vocab):
        grammar = GrammarCache(directory=tmp_path / "new").compile(compile_lark, LARK, vocabulary)
        assert takes_the_language(grammar)
    assert parsed == [LARK]
    assert GrammarCache(directory=tmp_path / "new").compile(compile_lark, LARK, byte_vocab, "start").accepts("a")
    assert GrammarCache(directory=tmp_path).compile(compile_lark, LARK, byte_vocab).accepts("a")
    assert parsed == [LARK, LARK], "another folder knows nothing"


def test_errors_are_the_same_from_a_file(byte_vocab: Vocabulary, tmp_path: Path) -> None:
    nothing = "start: start"
    messages = set()
    for _ in range(2):
        with pytest.raises(LarkError) as caught:
            GrammarCache(directory=tmp_path).compile(compile_lark, nothing, byte_vocab)
        messages.add(str(caught.value))
    assert len(messages) == 1


def damaged(text: str) -> dict[str, bytes]:
    """Files in place of a good one."""
    content = json.loads(text)
    steps, start = content["value"]
    other = {**content, "value": [[["terminal", "b", "B"], *steps[1:]], start]}
    return {
        "empty": b"",
        "cut": text.encode()[: len(text) // 2],
        "no JSON": b"\x80\x04\x95pickle",
        "nested": b"[" * 100_000,
        "a list": b"[]",
        "nothing": b"{}",
        "another format": json.dumps({**content, "format": 0}).encode(),
        "another version": json.dumps({**content, "version": "0.0.0"}).encode(),
        "another key": json.dumps({**content, "key": ["lark", "1", "start", "other"]}).encode(),
        "other steps": json.dumps(other).encode(),
    }


def test_a_file_that_is_not_right_is_ignored(byte_vocab: Vocabulary, tmp_path: Path, parsed: list[str]) -> None:
    GrammarCache(directory=tmp_path).compile(compile_lark, LARK, byte_vocab)
    (path,) = tmp_path.iterdir()
    good = path.read_text()
    for what, content in damaged(good).items():
        path.write_bytes(content)
        parsed.clear()
        grammar = GrammarCache(directory=tmp_path).compile(compile_lark, LARK, byte_vocab)
        assert takes_the_language(grammar), what
        assert parsed == [LARK], what
        assert path.read_text() == good, f"{what}: not written anew"


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        [],
        [[], 0],
        [[["symbol", 7]], 0],
        [[["compile", 1]], 0],
        [[["__init__"]], 0],
        [[["terminal", "(", "A"]], 0],
        [[["terminal", "a"]], 0],
        [[[]], 0],
        ["x", "y"],
        [[["nonterminal"]], -1],
        [[["nonterminal"]], 10**30],
        [[["nonterminal"]], "0"],
    ],
    ids=str,
)
def test_foreign_values_do_no_harm(value: Any, byte_vocab: Vocabulary, tmp_path: Path) -> None:
    """Even with the right format, version, key and digest."""
    store = GrammarCache(directory=tmp_path)._store
    assert store is not None
    store.put(["lark", lark.__version__, "start", LARK, "[]"], value)
    try:
        grammar = GrammarCache(directory=tmp_path).compile(compile_lark, LARK, byte_vocab)
    except LarkError:
        return
    assert takes_the_language(grammar)


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    from constrain.engine.store import Store

    store = Store(tmp_path, max_bytes=3000)
    for n in range(20):
        store.put([str(n)], "x" * 500)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
    assert store.get(["19"]) == "x" * 500
    assert store.get(["0"]) is None


def test_a_folder_that_cannot_be_written_is_a_warning(byte_vocab: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot write to the cache"):
        grammar = GrammarCache(directory=tmp_path / "file").compile(compile_lark, LARK, byte_vocab)
    assert takes_the_language(grammar)
