"""Special tokens in Lark grammars: each is allowed exactly where a grammar names it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from constrain import testing
from constrain.demo import model_dir
from constrain.engine import (
    CompiledGrammar,
    GrammarCache,
    Matcher,
    Vocabulary,
    allocate_bitmask,
    compile_choices,
    compile_json_schema,
    compile_lark,
    compile_regex,
    lark_warnings,
)
from constrain.errors import BudgetError, LarkError

Allowed = Callable[[Matcher, int], list[int]]

# Tokens of one byte each, some longer ones of text, and special ones. Text that looks like a special token is text.
TEXTS = [b"ab", b"aba", b"{}", b"<|", b"|>", b"<|go|>", b"12", b"1]", b'"x"', b"  ", b"\xff\xfe", b"<|go|>ab"]
NAMES = [b"<|go|>", b"<|got|>", b"[INST]", b"</s>", b"<|end|>", b"a b", b"<|go|>", b""]
GO, GOT, INST, STOP, END, SPACED, GO_TOO, NAMELESS = range(256 + len(TEXTS), 256 + len(TEXTS) + len(NAMES))
BYTES = [bytes([byte]) for byte in range(256)]


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    """``<|go|>`` is the name of two tokens; ``</s>`` and ``<|end|>`` end texts."""
    return Vocabulary.from_tokens(
        [*BYTES, *TEXTS, *NAMES], eos_ids=[STOP, END], special_ids=[GO, GOT, INST, SPACED, GO_TOO, NAMELESS]
    )


def after(grammar: CompiledGrammar, *tokens: int | bytes) -> Matcher:
    matcher = grammar.matcher()
    for token in tokens:
        assert matcher.accept_bytes(token) if isinstance(token, bytes) else matcher.accept(token), token
    return matcher


def test_one_token_at_one_place(vocab: Vocabulary, allowed: Allowed) -> None:
    grammar = compile_lark('start: <|go|> "ab" <|got|> %json {"const": {}}', vocab)
    assert allowed(grammar.matcher(), vocab.size) == [GO, GO_TOO]
    for token in (ord("<"), 256 + TEXTS.index(b"<|"), 256 + TEXTS.index(b"<|go|>"), GOT, 0xFF, END, NAMELESS):
        assert not grammar.matcher().accept(token)
    matcher = after(grammar, GO, b"ab")
    assert allowed(matcher, vocab.size) == [GOT]
    assert matcher.accept(GOT)
    assert not matcher.accept(GO)
    matcher.rollback(2)
    assert allowed(matcher, vocab.size) == [ord("a"), 256]
    assert allowed(after(grammar, GO_TOO, b"ab", GOT, b"{}"), vocab.size) == [STOP, END]


def test_texts_that_name_special_tokens(vocab: Vocabulary) -> None:
    grammar = compile_lark('start: <|go|> "ab" <[INST]>', vocab)
    assert grammar.accepts("<|go|>ab[INST]", special_tokens=True)
    assert grammar.accepts(b"\xff<|go|>\xffab\xff[INST]\xff")
    assert not grammar.accepts("<|go|>ab[INST]")
    assert not grammar.accepts("<|got|>ab[INST]", special_tokens=True)
    text = compile_lark('start: "<|go|>ab"', vocab)
    assert text.accepts("<|go|>ab")
    assert not text.accepts("<|go|>ab", special_tokens=True)


@pytest.mark.parametrize(
    "compiled",
    [
        lambda v: compile_regex(r"(?s).*[^a]*\W*", v),
        lambda v: compile_json_schema({}, v),
        lambda v: compile_json_schema({"type": "string", "pattern": "^[^a]"}, v),
        lambda v: compile_lark(r'start: /[^"]/+ "\u00ff"?', v),
        lambda v: compile_lark("start: /(.|\\n)+/ <|go|>\n", v),
        lambda v: compile_choices(["<|go|>", "ÿ<|go|>ÿ"], v),
    ],
)
def test_they_are_no_text(compiled: Callable[[Vocabulary], CompiledGrammar], vocab: Vocabulary) -> None:
    grammar, rng = compiled(vocab), random.Random(1)
    asked = "token" in str(grammar.explain("x").expected)
    for _ in range(20):
        matcher, bits = grammar.matcher(), allocate_bitmask(1, vocab.size)
        for _ in range(12):
            matcher.fill_bitmask(bits)
            tokens = [token for token in range(vocab.size) if bits[0, token // 32] >> (token % 32) & 1]
            special = {token for token in tokens if not vocab.token_bytes(token)}
            assert special <= ({GO, GO_TOO, STOP, END} if asked else {STOP, END})
            assert not any(b"\xff" in vocab.token_bytes(token) for token in tokens)
            texts = [token for token in tokens if token not in special]
            if not texts:
                break
            assert matcher.accept(rng.choice(texts))


# ---- As if special tokens were characters that nothing else can match.

STAND_INS = {"<|go|>": "\ue000", "<|got|>": "\ue001", "<[INST]>": "\ue002", "<|end|>": "\ue003"}
LIKE_TEXT = [
    'start: <|go|> "ab" <|got|>',
    'start: (<|go|> "a"? | "<|go|>" "b")+ <|end|>?',
    'start: (<|go|> | <|got|>) message ("," message)* | "<" start "|>"\nmessage: /[a-c]+/ | <[INST]> /[a-c]*[<|]/',
    "start: turn{<|go|>} turn{<|got|>}~1..12 <|end|>\nturn{x}: x /(ab|b)+/ | x x",
    'start: start <|go|> | "a" | <|go|> <|got|>',
    'start: item+\nitem: <|go|> | "a" <|got|> | "aba"\nWS: " "\n%ignore WS\n%ignore /#[a-z<|]*\\n?/',
    'start: <|go|> %json {"items": {"enum": [1, 12]}, "type": "array"} <|end|> | "1"',
    'start: "a"~3..5 (<|go|> "a")~2..4 "b"',
    'start: (<|go|> /[^\ue000-\uefff]{1,6}/? | <|got|> /[^"\ue000-\uefff]+/)+',
    "start: (<|go|> WORD)+ <[INST]>\nWORD: /\\w+/\n%ignore /[#-][ -~]*/\n%ignore /\\s/",
]


@pytest.mark.parametrize("text", LIKE_TEXT)
def test_they_are_like_characters_of_their_own(text: str, vocab: Vocabulary, allowed: Allowed) -> None:
    as_text = text
    for name, stand_in in STAND_INS.items():
        as_text = as_text.replace(f'"{name}"', "{}").replace(name, f'"{stand_in}"').replace("{}", f'"{name}"')
    characters = {GO: "\ue000", GO_TOO: "\ue000", GOT: "\ue001", INST: "\ue002", END: "\ue003"}
    tokens = [
        characters[i].encode() if i in characters else b"" if i >= GO else bytes_
        for i, bytes_ in enumerate([*BYTES, *TEXTS, *NAMES])
    ]
    tokens[0xEE] = b""  # no token begins a character that stands for a special one
    plain = Vocabulary.from_tokens([*tokens, b""], [len(tokens)])
    grammar, model = compile_lark(text, vocab), compile_lark(as_text, plain)
    rng = random.Random(2)
    for _ in range(30):
        matcher, other = grammar.matcher(), model.matcher()
        for _ in range(14):
            ends = matcher.is_accepting()
            assert ends == other.is_accepting()
            here = set(allowed(matcher, vocab.size)) - ({STOP, END} if ends else set())
            there = set(allowed(other, plain.size)) - {len(tokens)} - ({END} if ends else set())
            assert here == there
            if not here:
                break
            by_kind = {token >= GO: token for token in rng.sample(sorted(here), len(here))}
            token = rng.choice(list(by_kind.values()))
            assert matcher.accept(token)
            assert other.accept(token)
            if token == END:
                break


# ---- Budgets and forced text.

CALLS = """
start: (thought | call)+ <|end|>
thought: <|got|> /[a-z ]{3,20}/
call: <|go|> %json {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": false} <[INST]>
"""


def test_texts_end_within_their_budgets(vocab: Vocabulary) -> None:
    grammar, rng = compile_lark(CALLS, vocab), random.Random(3)
    least = grammar.matcher().min_tokens()
    assert least == 1 + 4, "a call without members takes four tokens; the token after the end counts as well"
    for budget in [least + i % 12 for i in range(60)]:
        matcher, bits = grammar.matcher(), allocate_bitmask(1, vocab.size)
        written: list[int] = []
        while not matcher.is_accepting():
            matcher.fill_bitmask(bits, budget=budget - len(written))
            token = rng.choice([t for t in range(vocab.size) if bits[0, t // 32] >> (t % 32) & 1])
            assert matcher.accept(token)
            written.append(token)
        assert len(written) < budget
        assert written[-1] == END
    with pytest.raises(BudgetError):
        grammar.matcher().fill_bitmask(allocate_bitmask(1, vocab.size), budget=least - 1)


def test_forced_tokens_without_a_tokenizer(vocab: Vocabulary) -> None:
    matcher = compile_lark('start: <|got|> "1]" <[INST]> ("a" | "b") <|end|>', vocab).matcher()
    assert matcher.forced_bytes() == b"\xff<|got|>\xff1]\xff[INST]\xff"
    assert matcher.forced_tokens() == [GOT]
    assert after(compile_lark('start: <|got|> ("a" | <|end|>)', vocab), GOT).forced_tokens() == []
    assert compile_lark("start: <|got|> | <|end|>", vocab).matcher().forced_bytes() == b""
    assert after(compile_lark('start: "a" <|end|>', vocab), b"a").forced_tokens() == [END]
    assert after(compile_lark('start: "a" <|end|>', vocab), b"a").completion() == b"\xff<|end|>\xff"


def test_forced_tokens_are_those_of_the_tokenizer() -> None:
    vocabulary = Vocabulary.from_pretrained(model_dir())
    tokenizer = Tokenizer.from_file(str(Path(model_dir()) / "tokenizer.json"))
    texts = [
        '<|text|>the name of<|record|>{"kind": 1}<|schema|>',
        '<|text|>the name of<|record|>{"kind": 12}<|schema|>',
    ]
    grammar = compile_lark(
        """start: <|text|> "the name of" <|record|> %json {"properties": {"kind": {"enum": [1, 12]}}, "type": "object",
             "required": ["kind"], "additionalProperties": false} <|schema|>""",
        vocabulary,
    )
    for text in texts:
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        matcher, forced_at_all = grammar.matcher(), 0
        for i, token in enumerate([*tokens, *vocabulary.eos_token_ids]):
            forced = matcher.forced_tokens()
            assert forced == [*tokens, *vocabulary.eos_token_ids][i : i + len(forced)]
            forced_at_all += len(forced)
            assert matcher.accept(token)
        assert forced_at_all > 5


# ---- Ends of texts.


def test_a_token_that_ends_texts_may_come_last(vocab: Vocabulary, allowed: Allowed) -> None:
    matcher = after(compile_lark('start: <|go|> "ab" <|end|>', vocab), GO, b"ab")
    assert not matcher.is_accepting()
    assert allowed(matcher, vocab.size) == [END]
    assert not matcher.accept(STOP)
    assert matcher.accept(END)
    assert matcher.is_finished()
    assert matcher.min_tokens() == 0
    assert allowed(matcher, vocab.size) == [STOP, END]
    matcher.rollback(1)
    assert not matcher.is_accepting()
    either = after(compile_lark('start: "a" <|end|>?', vocab), b"a")
    assert allowed(either, vocab.size) == [STOP, END]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('start: "a" <|end|> "b"', 1, 12),
        ('start: "a"\n  | (<|end|> | "b")+', 2, 6),
        ("start: turn~2..12\nturn: <|go|> <|end|>", 2, 14),
        ('start: twice{<|end|>}\ntwice{x}: x "a" x', 1, 14),
    ],
)
def test_nothing_follows_the_end(text: str, line: int, column: int, vocab: Vocabulary) -> None:
    with pytest.raises(LarkError, match=re.escape("'<|end|>' ends the text, so nothing may follow it")) as error:
        compile_lark(text, vocab)
    assert (error.value.line, error.value.column) == (line, column)


def test_nothing_follows_the_end_of_another_grammar(vocab: Vocabulary) -> None:
    grammars = {"turn": "start: end\nend: <|go|> /[a-z]+/ <|end|>"}
    assert compile_lark('start: "x" @turn', vocab, grammars=grammars).accepts("x<|go|>y<|end|>", special_tokens=True)
    with pytest.raises(LarkError, match="ends the text") as error:
        compile_lark("start: @turn @turn", vocab, grammars=grammars)
    assert (error.value.grammar, error.value.line, error.value.column) == ("turn", 2, 22)


def test_ignored_text_around_the_end(vocab: Vocabulary) -> None:
    grammar = compile_lark('start: "a" <|end|>\n%ignore " "', vocab)
    assert grammar.accepts(" a <|end|>", special_tokens=True)
    matcher = after(grammar, b"a", END)
    assert matcher.is_finished()
    assert not matcher.accept(ord(" "))


# ---- Names.


def test_declared_terminals(vocab: Vocabulary) -> None:
    text = 'start: A @other B "x" A\n%declare A B'
    grammars = {"other": 'start: A "y"\n%declare A'}
    grammar = compile_lark(text, vocab, grammars=grammars, special_tokens={"A": "a b", "B": "[INST]"})
    assert grammar.accepts("a ba by[INST]xa b", special_tokens=True)
    with pytest.raises(LarkError, match="terminal 'B' is declared but has no pattern") as error:
        compile_lark(text, vocab, grammars=grammars, special_tokens={"A": "a b"})
    assert (error.value.line, error.value.column) == (2, 12)
    with pytest.raises(LarkError, match="no special token 'INST'; it has ") as error:
        compile_lark(text, vocab, grammars=grammars, special_tokens={"A": "a b", "B": "INST"})
    assert (error.value.line, error.value.column) == (2, 12)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('start: "<|go|>" // <|goo|>\n  | <|goo|>', 2, 5, "no special token '<|goo|>'; it has <|go|>, <|got|>"),
        ("start: <x>", 1, 8, "no special token '<x>'; it has </s>"),
        ("start: <[go]>", 1, 8, "no special token '[go]'"),
        ("start: <{}>", 1, 8, "no special token '<{}>'"),
        ("start: A\nA: <|go|>", 2, 4, "<|go|> belongs in rules"),
        ('start: "a"\n%ignore <|go|>', 2, 9, "<|go|> belongs in rules"),
        ('start: "a" <|go', 1, 12, "a special token stands as a word of its own"),
        ('start: a<|go|>\na: "a"', 1, 9, "a special token stands as a word of its own"),
    ],
)
def test_refused_with_their_places(text: str, line: int, column: int, reason: str, vocab: Vocabulary) -> None:
    with pytest.raises(LarkError, match=re.escape(reason)) as error:
        compile_lark(text, vocab)
    assert (error.value.line, error.value.column) == (line, column)
    with pytest.raises(LarkError) as error:
        compile_lark("start: @it", vocab, grammars={"it": text})
    assert (error.value.grammar, error.value.line, error.value.column) == ("it", line, column)


def test_ordinary_text_in_angle_brackets() -> None:
    vocabulary = Vocabulary.from_tokens([*BYTES, b"<think>", b"</s>"], [257])
    with pytest.raises(LarkError, match=r"'<think>' is ordinary text in this vocabulary, .* write it as a string"):
        compile_lark("start: <think>", vocabulary)
    with pytest.raises(LarkError, match="no special token '<b>'; it has none with a name"):
        compile_lark("start: <b>", Vocabulary.from_tokens([*BYTES, b""], [256]))


def test_names_of_a_tokenizer(bpe_tokenizer: Tokenizer, tmp_path: Path, allowed: Allowed) -> None:
    tokenizer = Tokenizer.from_str(bpe_tokenizer.to_str())
    tokenizer.add_special_tokens([AddedToken("<|ask|>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    vocabulary = Vocabulary.from_pretrained(tmp_path)
    ask = tokenizer.token_to_id("<|ask|>")
    assert vocabulary.special_tokens == {"<end>": 0, "<|ask|>": ask}
    matcher = compile_lark('start: <|ask|> "a"* <end>', vocabulary).matcher()
    assert allowed(matcher, vocabulary.size) == [ask]
    assert ask is not None
    assert matcher.accept(ask)
    assert 0 in allowed(matcher, vocabulary.size)
    narrow = Vocabulary.from_pretrained(tmp_path, size=ask)
    assert narrow.special_tokens == {"<end>": 0}


def test_grammars_cached_in_files(vocab: Vocabulary, tmp_path: Path) -> None:
    text = 'start: "a" <|got|> B "b" <|end|>\n%declare B'
    tokens = {"B": "[INST]"}
    for _ in range(2):
        cached = GrammarCache(directory=tmp_path).compile(compile_lark, text, vocab, special_tokens=tokens)
        assert cached.accepts("a<|got|>[INST]b<|end|>", special_tokens=True)
        assert len(list(tmp_path.glob("*.json"))) == 1
    lacking = Vocabulary.from_tokens([*BYTES, b"<|end|>"], [256])
    with pytest.raises(LarkError, match=re.escape("no special token '<|got|>'")) as error:
        GrammarCache(directory=tmp_path).compile(compile_lark, text, lacking, special_tokens=tokens)
    assert (error.value.line, error.value.column) == (1, 12)
    other = GrammarCache(directory=tmp_path).compile(compile_lark, text, vocab, special_tokens={"B": "<|go|>"})
    assert other.accepts("a<|got|><|go|>b<|end|>", special_tokens=True)


# ---- What is around them.


@pytest.mark.parametrize(
    ("terminal", "text", "accepted"),
    [
        ("/[a-z]+(?![0-9])/", "ab", True),
        ("/(?!if(?!\\w))[a-z]+/", "iff", True),
        ("/(?!if(?!\\w))[a-z]+/", "if", False),
        ("/ab$/", "ab", True),
        ("/ab\\Z/", "ab", True),
        ("/a(?!b)|ab/", "ab", True),
    ],
)
def test_lookahead_of_terminals_ends_before_them(terminal: str, text: str, accepted: bool, vocab: Vocabulary) -> None:
    grammar = compile_lark(f"start: A <|go|>\nA: {terminal}", vocab)
    assert grammar.accepts(f"{text}<|go|>", special_tokens=True) is accepted
    assert compile_lark(f"start: A\nA: {terminal}", vocab).accepts(text) is accepted


def test_nothing_to_warn_of() -> None:
    assert lark_warnings('start: <|go|> A B\nA: /[a-z]+/\n%declare B\n%ignore " "') == []


# ---- Explanations, and help for tests.


def test_explanations(vocab: Vocabulary) -> None:
    grammar = compile_lark('start: <|go|> "ab" (<|got|> | "c" <[INST]>)', vocab)
    assert str(grammar.explain("ab")) == "line 1, column 1 (byte 0): found `a`, expected the token <|go|>\nab\n^"
    found = grammar.explain("<|go|>ab<|go|>", special_tokens=True)
    assert (found.found, found.offset, found.column) == ("the token <|go|>", 8, 9)
    assert found.expected == ("`c`", "the token <|got|>")
    assert grammar.explain("<|go|>abc", special_tokens=True).expected == ("the token [INST]",)
    assert grammar.explain("<|go|>ab<|got|>", special_tokens=True).accepted
    assert str(grammar.matcher().explain(GOT)) == f"token {GOT} <|got|> is refused: expected the token <|go|>"
    assert str(grammar.matcher().explain(GO)) == f"token {GO} <|go|> is allowed"
    assert grammar.matcher().explain(NAMELESS).reason == f"token {NAMELESS} is no text, so no constraint allows it"


def test_samples_and_models_that_insist() -> None:
    vocabulary = testing.small_vocabulary()
    grammar = compile_lark('start: (<|text|> /[a-z]{1,8}/)+ <|record|> %json {"type": "object"} <eos>', vocabulary)
    for seed in range(10):
        text = testing.sample(grammar, seed)
        assert text.startswith("<|text|>")
        assert text.endswith("}<eos>")
        assert testing.accepts(grammar, text, special_tokens=True)
        assert not testing.accepts(grammar, text)
    wanted = '<|text|>abc<|text|>d<|record|>{"a": [1]}<eos>'
    assert testing.MockModel(wanted).write(grammar) == wanted
    assert json.loads(testing.MockModel("{}").write(grammar).split("<|record|>")[1].removesuffix("<eos>")) == {}
