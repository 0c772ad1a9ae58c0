"""The formats of JSON Schema against examples, and their words against validators."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import jsonschema_rs
import pytest

from constrain._core import Automaton
from constrain.engine import compile_json_schema
from constrain.testing import small_vocabulary

EXAMPLES = {
    "date": (
        ["2024-02-29", "2000-02-29", "0001-12-31"],
        ["2023-02-29", "1900-02-29", "2024-04-31", "24-01-01", "0000-01-01"],
    ),
    "time": (
        [
            *("23:59:59Z", "08:30:06.283185z", "00:00:00+01:30", "12:00:00." + "9" * 40 + "Z"),
            *("23:59:60Z", "23:59:60.5-00:00", "23:59:60+00:00", "00:14:60+00:15", "23:29:60+23:30", "00:59:60-23:00"),
        ],
        ["24:00:00Z", "23:59:59", "12:00:60Z", "1:00:00Z", "23:59:60+01:00", "00:14:60-00:15", "23:59:61Z", "1:2:3Z"],
    ),
    "date-time": (
        [
            *("1963-06-19T08:30:06.28Z", "2024-02-29t00:00:00-08:00"),
            *("2016-12-31T23:59:60Z", "2015-06-30T15:59:60.1-08:00", "2017-01-01T08:59:60+09:00"),
        ],
        [
            *("2023-02-29T00:00:00Z", "2024-01-01 00:00:00Z", "2016-12-30T23:59:60Z", "2016-12-31T08:59:60+09:00"),
            *("2017-01-01T23:59:60Z", "2016-12-31T23:58:60Z"),
        ],
    ),
    "duration": (
        ["P4DT12H30M5S", "P1Y2M3D", "PT36H", "P2W", "P" + "9" * 40 + "D"],
        ["P", "PT", "P1D2H", "P1Y2W", "4DT12H", "P1YT", "PT1D"],
    ),
    "email": (
        ["joe@example.com", '"a b"@x.org', "a.b+c@[127.0.0.1]", "a@[IPv6:::1]"],
        ["joe", ".a@b.c", "a..b@c", "a@", "@b"],
    ),
    "idn-email": (["실례@실례.테스트", "joe@example.com"], ["실례", "@x"]),
    "hostname": (["www.example.com", "a-b", "1host", "a" * 63], ["-a", "a-", "a_b", "a..b", "", "a" * 64, "xn--x"]),
    "idn-hostname": (
        ["실례.테스트", "www.example.com", "bücher。example", "l·l", "α͵β", "א׳ב", "・ア", "क्‍ष", "بي‌بي", "אבג.a"],
        ["-x", "", "ab--cd", "a·l", "α͵", "׳א", "・", "क‍ष", "x‌y", "0a.א", "aא", "E\u0301", "Bücher", "xn--bcher-kva"],
    ),
    "ipv4": (["0.0.0.0", "255.249.199.1"], ["256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"]),
    "ipv6": (
        ["::", "::1", "1:2:3:4:5:6:7:8", "1::8", "::ffff:1.2.3.4", "1:2:3:4:5:6::8", "1:2:3:4:5:6:7::"],
        [":::", "1::2::3", "12345::", "1:2:3:4:5:6:7", "::1%eth0"],
    ),
    "uri": (
        ["http://a.b/c?d=e#f", "urn:x:y", "ftp://u@[::1]:21/", "a:"],
        ["//a.b", "/c", "http://a b", "a", "http://[1]/"],
    ),
    "uri-reference": (["/a?b#c", "//h/p", "", "#f", "a/b:c", "http://x"], ["\\a", "a b", "a:b:c d", "%zz"]),
    "iri": (["http://ƒøø.ßår/?∂=πéé"], ["/é", "http://é é"]),
    "iri-reference": (["/âππ", "#é"], ["\\é"]),
    "uri-template": (
        ["http://x/{term:1}/{+path*}{?q,lang}", "", "{%41b.c:9999}"],
        ["{", "{}", "a{b", "}", "{%4}", "{a:10000}", "{a:0}"],
    ),
    "uuid": (
        ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
        ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8-aa08-aa98-11ea-b4aa73b44-1d16380"],
    ),
    "json-pointer": (["", "/", "/a~1b/~0/é", "/0"], ["a", "/~", "/~2"]),
    "relative-json-pointer": (["0", "1/a", "2#", "100", "1020/a"], ["/a", "01", "-1/a", "0##", ""]),
    "regex": (
        [
            *("", "^a+[^a-z]{2}$", "(a|(b)*)?\\d", "(?:a|)", "[]", "[^]", "\\cA"),
            *("(?<name>x)|y", "(?<=a+)b(?!c)", "(?<!a)"),
        ],
        [
            *("(", "a)", "[", "*a", "^(abc]", "a**", "\\c1", "\\a"),
            *("(?<a>x)(?<b>y)", "(?<1>x)", "(?<=a)*", "(?P<a>x)", "(?i)a"),
        ],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    inner, outer = Automaton.format(name)
    valid, invalid = EXAMPLES[name]
    assert [text for text in valid + invalid if inner.matches(text)] == valid
    assert all(outer.matches(text) for text in valid)


def test_unknown_format() -> None:
    assert Automaton.format("colour") is None


def test_a_host_name_has_at_most_253_characters() -> None:
    inner, _ = Automaton.format("hostname")
    labels = ".".join(["a" * 63] * 3) + "."
    assert inner.matches(labels + "a" * 61)
    assert not inner.matches(labels + "a" * 62)


# Texts of the standards that one of the validators refuses.
DISPUTED = {
    "time": r":60|\.[0-9]{10}",
    "date-time": r":60|\.[0-9]{10}",
    "duration": "[0-9]{10}",
    "relative-json-pointer": "^[0-9]*0[0-9]|^[0-9]{10}",
    "regex": r"\\c|\(\?<|\[\^?\]",
    "uri-template": "%|:[0-9]{4}",
}


def random_word(automaton: Automaton, rng: random.Random) -> str:
    state, text = automaton.start(), bytearray()
    stop = rng.choice([0.02, 0.1, 0.4])
    while True:
        following = automaton.next_bytes(state)
        assert following or automaton.accepting(state)
        if automaton.accepting(state) and (not following or rng.random() < stop):
            return text.decode()
        if len(text) > 80:
            byte = min(following, key=lambda byte: automaton.shortest_length(automaton.step(state, byte)))
        else:
            ascii_only = [byte for byte in following if byte < 128]
            byte = rng.choice(ascii_only if ascii_only and rng.random() < 0.9 else following)
        text.append(byte)
        state = automaton.step(state, byte)


@pytest.mark.parametrize("name", EXAMPLES)
def test_completions_are_shortest_values(name: str) -> None:
    inner, _ = Automaton.format(name)
    grammar = compile_json_schema({"type": "string", "format": name}, small_vocabulary())
    value = json.loads(grammar.matcher().completion())
    assert inner.matches(value)
    assert len(value.encode()) == inner.shortest_length()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
def test_validators_accept_the_inner_language(name: str) -> None:
    inner, outer = Automaton.format(name)
    rng = random.Random(11)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    fast = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    for _ in range(80):
        word = random_word(inner, rng)
        if not re.search(DISPUTED.get(name, "$."), word):
            assert checker.conforms(word, name), word
            assert fast.is_valid(word), word
        assert outer.matches(word), word
