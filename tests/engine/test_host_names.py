"""Host names: international labels, and labels that encode them, which are no regular language."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest
from walks import allowed_tokens

from constrain._core import Automaton
from constrain.engine import CompiledGrammar, Vocabulary, compile_json_schema
from constrain.testing import small_vocabulary

HOSTNAME = {"format": "hostname", "type": "string"}
#: With all contexts of RFC 5892, both directions, and marks that compose with none of the letters.
LETTERS = "abcxl019-ßüé·αβ͵άאב׳ابي٠۰\u200c\u200dक्षिじア中ภ้ាত"


def encoded(label: str) -> str:
    return "xn--" + label.encode("punycode").decode()


def conforms(name: str) -> bool:
    """Verdict of the ``idna`` package, which knows labels of any length."""
    return jsonschema.Draft202012Validator.FORMAT_CHECKER.conforms(name, "idn-hostname")


def quoted(name: str) -> bytes:
    return f'"{name}"'.encode()


@pytest.fixture(scope="module", params=["hostname", "idn-hostname"])
def grammar(request: pytest.FixtureRequest) -> CompiledGrammar:
    return compile_json_schema({"type": "string", "format": request.param}, small_vocabulary())


@pytest.mark.parametrize(
    "name",
    [
        *("xn--mnchen-3ya", "www.xn--mnchen-3ya.de", "xn--4dbc5h", "xn--4dbc5h.example", "xn--0-gyc"),
        *("xn--a", "xn--", "xn--mnchen-3y", "xn--mnchen-3ya-", "xn--example-", "xn---9uc", "xn--7a"),
        *("xn--0ca24w", "xn--ls8h", "ab--c", "xn--abc"),
    ],
)
def test_labels_that_encode_others(name: str, grammar: CompiledGrammar) -> None:
    assert grammar.accepts(quoted(name)) == conforms(name)


def test_labels_are_in_nfc() -> None:
    inner, _ = Automaton.format("idn-hostname")
    assert all(map(inner.matches, ["বাংলা", "தமிழ்", "ज़मीन", "हिन्दी", "ภาษาไทย", "ქართული", "ひらがな"]))
    assert not any(map(inner.matches, ["e\u0301", "ে\u09be", "न\u093c", "か\u3099", "א\u05b0\u05b0\u0591\u05b0"]))


def test_directions_of_all_labels(grammar: CompiledGrammar) -> None:
    """A right-to-left label forbids labels that begin with a digit, before it and after it."""
    for name in ("xn--4dbc5h.0a", "0a.xn--4dbc5h", "a.xn--4dbc5h.0.b"):
        assert not grammar.accepts(quoted(name))
    assert grammar.accepts(quoted("a0.xn--4dbc5h.b"))
    assert grammar.accepts(quoted("0a.xn--mnchen-3ya"))


def test_encoded_labels_are_in_lower_case(grammar: CompiledGrammar) -> None:
    """As RFC 5890 has them, though some programs take others."""
    assert grammar.accepts(quoted("WWW.Example.org"))
    assert not grammar.accepts(quoted("XN--mnchen-3ya")) and not grammar.accepts(quoted("xn--mnchen-3YA"))


@pytest.mark.seeds(4)
def test_random_labels_agree_with_idna(seed: int, grammar: CompiledGrammar) -> None:
    rng = random.Random(seed)
    inner, _ = Automaton.format("idn-hostname")
    num_valid = 0
    for _ in range(400):
        label = "".join(rng.choices(LETTERS, k=rng.randint(1, 7)))
        valid = conforms(label)
        num_valid += valid
        assert inner.matches(label) == valid, ascii(label)
        if not label.isascii():
            assert grammar.accepts(quoted(encoded(label))) == valid, ascii(label)
    assert num_valid > 20


@pytest.mark.seeds(12)
def test_every_text_ends_as_a_name(seed: int, grammar: CompiledGrammar) -> None:
    """After ``xn--`` and random allowed tokens, a name can be completed, also where the label nears its longest."""
    rng = random.Random(seed)
    matcher, text = grammar.matcher(), b'"' + rng.choice([b"", b"a.", b"0.", b"www.example."]) + b"xn--"
    assert matcher.accept_bytes(text)
    for _ in range(rng.choice([1, 5, 30, 80])):
        tokens = [token for token in allowed_tokens(matcher) if token not in grammar.vocabulary.eos_token_ids]
        assert tokens == [token for token in tokens if matcher.clone().accept(token)]
        if not tokens:
            break
        token = rng.choice(tokens)
        text += grammar.vocabulary.token_bytes(token)
        assert matcher.accept(token)
    text += matcher.completion()
    assert grammar.accepts(text) and conforms(text.decode()[1:-1]), text


def test_masks_within_an_encoded_label() -> None:
    """Tokens that end the label are told apart by what it encodes."""
    tokens = [b"", *(bytes([byte]) for byte in range(256)), b'ya"', b'zz"', b'ya.de"', b"ya.xn--", b"ya-", b"yA", b'a"']
    vocabulary = Vocabulary.from_tokens(tokens, [0])
    matcher = compile_json_schema(HOSTNAME, vocabulary).matcher()
    for text in (b'"xn--mnchen-3', b"y"):
        assert matcher.accept_bytes(text)
        expected = [token for token in range(1, len(tokens)) if matcher.clone().accept(token)]
        assert allowed_tokens(matcher) == expected
    assert tokens.index(b'a"') in expected and tokens.index(b'zz"') not in expected


@pytest.mark.parametrize("prefix", [b'"', b'"xn--', b'"xn--mnchen-3', b'"a.xn--' + b"z" * 49, b'"xn--4dbc5'])
def test_names_end_within_a_budget(prefix: bytes, grammar: CompiledGrammar) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        matcher, text = grammar.matcher(), prefix
        assert matcher.accept_bytes(prefix)
        for left in range(matcher.min_tokens() + seed, 0, -1):
            token = rng.choice(allowed_tokens(matcher, left))
            assert matcher.accept(token)
            if token in grammar.vocabulary.eos_token_ids:
                break
            text += grammar.vocabulary.token_bytes(token)
        assert grammar.accepts(text) and conforms(text.decode()[1:-1]), text


def test_names_with_other_conditions(judge: Any) -> None:
    """With a pattern or a length, or as keys, names are a regular language, without labels that encode others."""
    for condition in ({"pattern": "^[a-z.-]*$"}, {"maxLength": 20}, {"not": {"const": "x"}}):
        schema = {**HOSTNAME, **condition}
        assert judge(schema, "www.example.org") and not judge(schema, "-a")
    names = {"type": "object", "propertyNames": HOSTNAME}
    assert judge(names, {"www.example.org": 1}) and not judge(names, {"xn--x": 1})
    assert judge({"type": "array", "items": HOSTNAME, "uniqueItems": True, "minItems": 2}, ["xn--mnchen-3ya", "a"])
    assert not judge({"items": HOSTNAME, "uniqueItems": True}, ["xn--mnchen-3ya", "xn--mnchen-3ya"])
