"""Vocabularies, and ways to ask a grammar about whole texts."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from constrain.engine import CompiledGrammar, Matcher, Vocabulary, allocate_bitmask, compile_json_schema

Judge = Callable[..., bool]
Verify = Callable[..., None]

CORPUS = [
    '{"name": "Ada", "age": 36, "tags": ["red", "green"], "ok": true, "none": null, "price": 12.50}',
    '{"id": "a1-b2", "email": "ada@example.org", "when": "2024-05-06T07:08:09Z", "ids": [1, 22, 333]}',
    '{\n  "items": [\n    {"kind": "circle", "radius": 1.5},\n    {"kind": "square", "side": 2}\n  ]\n}',
    'naïve café, Ελλάδα, 東京 🙂 "quoted" \\"escaped\\" \\u00e9 \\n -1e-6 "a":"b","c":{"d":[{}]}}',
] * 8


@pytest.fixture(scope="session")
def byte_vocab() -> Vocabulary:
    """One token for each byte, and id 256 for the end."""
    return Vocabulary.from_tokens([bytes([i]) for i in range(256)] + [b""], [256])


@pytest.fixture(scope="session")
def wide_vocab() -> Vocabulary:
    """All bytes, all of three letters, and what comes between strings."""
    words = [bytes(word) for word in product(string.ascii_lowercase.encode(), repeat=3)]
    between = [b'",', b'":', b'":"', b'","', b'"}', b'":1', b'{"', b'["', b'"]', b'a"', b'abc"', b'abc":', b"\xc3\xa9"]
    between += [b'":"","', b'":10,"', b'":null,"a', b'":1}', b'x"', b'bb":']
    tokens = [bytes([byte]) for byte in range(256)] + words + between + [b""]
    return Vocabulary.from_tokens(tokens, [len(tokens) - 1])


@pytest.fixture(scope="session")
def bpe_tokenizer() -> Tokenizer:
    """A byte-level tokenizer, trained on a little JSON, whose token 0 is the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def bpe_vocab(bpe_tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of that tokenizer."""
    by_byte = {char: byte for byte, char in enumerate(byte_characters())}
    tokens = [b""] * bpe_tokenizer.get_vocab_size()
    for piece, i in bpe_tokenizer.get_vocab().items():
        if i:
            tokens[i] = bytes(by_byte[char] for char in piece)
    return Vocabulary.from_tokens(tokens, [0])


def byte_characters() -> list[str]:
    """The printable stand-in of each byte, as GPT-2 chose them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


@pytest.fixture(scope="session")
def judge(byte_vocab: Vocabulary) -> Judge:
    """Whether a schema's grammar takes a whole text (of bytes or str), or a value as ``json.dumps`` writes it."""

    def judged(schema: Any, instance: Any, **options: Any) -> bool:
        grammar = schema if isinstance(schema, CompiledGrammar) else compile_json_schema(schema, byte_vocab, **options)
        text = instance if isinstance(instance, bytes) else json.dumps(instance, ensure_ascii=False).encode()
        matcher = grammar.matcher()
        return bool(matcher.accept_bytes(text) and matcher.is_accepting())

    return judged


@pytest.fixture(scope="session")
def verify(byte_vocab: Vocabulary, judge: Judge) -> Verify:
    """Asserts that a schema takes some instances and refuses others.

    Instances are values, or texts (bytes) where their spelling matters. Values are put to ``jsonschema`` as well, so
    that a mistaken expectation cannot pass; ``oracle=False`` is for what it is known to judge otherwise.
    """

    def verified(schema: Any, yes: Any = (), no: Any = (), oracle: bool = True, **options: Any) -> None:
        grammar = compile_json_schema(schema, byte_vocab, **options)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        for expected, instances in ((True, yes), (False, no)):
            for instance in instances:
                assert judge(grammar, instance) is expected, instance
                if oracle and (expected or not isinstance(instance, bytes)):
                    value = json.loads(instance) if isinstance(instance, bytes) else instance
                    assert validator.is_valid(value) is expected, f"the oracle disagrees about {instance!r}"

    return verified


@pytest.fixture(scope="session")
def allowed() -> Callable[[Matcher, int], list[int]]:
    """The tokens of a vocabulary of some size that a matcher allows."""

    def of(matcher: Matcher, size: int) -> list[int]:
        bits = allocate_bitmask(1, size)
        matcher.fill_bitmask(bits)
        return list(map(int, unpack(bits, size)[0].nonzero()[0]))

    return of


def unpack(bits: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.bool_]:
    """The bits of each row of a bitmask, token by token."""
    return np.unpackbits(bits.view(np.uint8), axis=-1, bitorder="little")[:, :size].astype(bool)
