"""Forced tokens: what is written without asking the model must be what its tokenizer would have made of the text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

from constrain.demo import model_dir
from constrain.engine import CompiledGrammar, Vocabulary, compile_choices, compile_json_schema, compile_regex
from constrain.testing import byte_vocabulary, sample

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "nature": {"enum": ["red", "reddish", "green grass", "naïve", "🙂 🙃"]},
        "ids": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "none": {"type": "null"},
    },
    "required": ["name", "nature", "ids", "none"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, Callable[[Vocabulary], CompiledGrammar]] = {
    "in order": lambda v: compile_json_schema(RECORD, v, property_order="schema", whitespace="compact"),
    "any order": lambda v: compile_json_schema(RECORD, v),
    "indented": lambda v: compile_json_schema(RECORD, v, property_order="schema", whitespace=2),
    "spaces": lambda v: compile_json_schema(RECORD, v, property_order="schema", whitespace="single"),
    "choices": lambda v: compile_choices(["the name of the rose", "the name of the rosebud", "the names of it"], v),
    "pattern": lambda v: compile_regex(r"https://example\.org/(items|item)/[0-9]{3}  (red|green)\n\n  ok", v),
    "characters": lambda v: compile_choices(
        ["the naïve é", "the naïve è", "the naïve \U0001f642", "the  ñ", "the  ò"], v
    ),
    "digits": lambda v: compile_regex(r"12345(67)?(0000)? \) ", v),
}


@pytest.fixture(scope="session")
def tokenizers(bpe_tokenizer: Tokenizer) -> dict[str, Tokenizer]:
    """Byte-level ones with and without a liking for JSON, and one with marks for spaces."""
    built_in = Tokenizer.from_file(str(Path(model_dir()) / "tokenizer.json"))
    marked = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    marked.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    marked.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<end>", "<unk>"], show_progress=False, max_token_length=12
    )
    texts = [
        sample(make(Vocabulary.from_pretrained(model_dir())), seed) for make in GRAMMARS.values() for seed in range(9)
    ]
    marked.train_from_iterator([*texts, "the name of the rose is 12 345 items, red or green: the names"] * 3, trainer)
    description = json.loads(marked.to_str())
    pieces = description["model"]["vocab"]
    pieces |= {f"<0x{byte:02X}>": len(pieces) + byte for byte in range(256)}
    return {"trained": bpe_tokenizer, "built-in": built_in, "marked": Tokenizer.from_str(json.dumps(description))}


@pytest.fixture(scope="session")
def vocabularies(tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocabulary]:
    folder = tmp_path_factory.mktemp("tokenizers")
    found = {"built-in": Vocabulary.from_pretrained(model_dir())}
    for name in ("trained", "marked"):
        (folder / name).mkdir()
        tokenizers[name].save(str(folder / name / "tokenizer.json"))
        (folder / name / "config.json").write_text('{"eos_token_id": 0}')
        found[name] = Vocabulary.from_pretrained(folder / name)
    return found


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("name", ["trained", "built-in", "marked"])
def test_forced_tokens_are_those_of_the_tokenizer(
    name: str, grammar: str, tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary]
) -> None:
    compiled, tokenizer = GRAMMARS[grammar](vocabularies[name]), tokenizers[name]
    plain, forced_at_all = GRAMMARS[grammar](byte_vocabulary()), 0
    for seed in range(25):
        tokens = tokenizer.encode(sample(plain, seed, max_tokens=90), add_special_tokens=False).ids
        tokens.append(compiled.vocabulary.eos_token_ids[0])
        matcher = compiled.matcher()
        for i, token in enumerate(tokens):
            forced = matcher.forced_tokens()
            assert forced == tokens[i : i + len(forced)], tokenizer.decode(tokens[: i + 1])
            forced_at_all += len(forced)
            assert matcher.accept(token)
    assert forced_at_all


def test_a_token_that_may_go_on_is_left_to_the_model(vocabularies: dict[str, Vocabulary]) -> None:
    def forced(choices: list[str], before: bytes = b"") -> list[bytes]:
        vocabulary = vocabularies["built-in"]
        matcher = compile_choices(choices, vocabulary).matcher()
        assert matcher.accept_bytes(before)
        return [vocabulary.token_bytes(token) for token in matcher.forced_tokens()]

    assert b"".join(forced(["the name", "the names"])) == b"the", (
        "the next token may be the space with the word after it"
    )
    assert b"".join(forced(["the name of", "the name is"])) == b"the name"
    assert forced(["the name"])[-1] == b"", "the end is forced as well"
    assert forced(["a", "b"]) == []


def test_history_is_never_cut_anew(vocabularies: dict[str, Vocabulary]) -> None:
    vocabulary = vocabularies["built-in"]
    matcher = compile_choices(["the name"], vocabulary).matcher()
    token = next(i for i in range(vocabulary.size) if vocabulary.token_bytes(i) == b"t")
    assert matcher.accept(token)
    assert matcher.forced_bytes() == b"he name"
    assert matcher.forced_tokens() == [], "the tokenizer would not have begun with this token"


def test_forced_bytes_end_at_a_choice(vocabularies: dict[str, Vocabulary]) -> None:
    matcher = compile_json_schema(
        RECORD, vocabularies["built-in"], property_order="schema", whitespace="compact"
    ).matcher()
    assert matcher.forced_bytes() == b'{"name":"'
    assert matcher.accept_bytes(b'{"name":"x","nat')
    assert matcher.forced_bytes() == b'ure":"'
    assert matcher.accept_bytes(b'ure":"na')
    assert matcher.forced_bytes() == 'ïve","ids":['.encode()
    assert compile_regex("a{1000}b*", vocabularies["trained"]).matcher().forced_bytes() == b"a" * 256


def test_no_token_is_forced_within_a_character(vocabularies: dict[str, Vocabulary]) -> None:
    vocabulary = vocabularies["built-in"]
    matcher = compile_choices(["the é", "the è", "\U0001d7d8", "\U0001d7d9"], vocabulary).matcher()
    assert matcher.accept_bytes(b"the ")
    assert matcher.forced_bytes() == b"\xc3"
    assert matcher.forced_tokens() == []
    matcher.reset()
    for byte in "\U0001d7d8".encode()[:3]:
        matcher.forced_tokens()
        assert matcher.accept_bytes(bytes([byte]))
    assert matcher.forced_tokens() == []


_CONCURRENT = """
import sys, threading
from constrain.engine import Vocabulary, compile_json_schema
from constrain.llm import load_model

sys.setswitchinterval(1e-6)
vocabulary = Vocabulary.from_tokenizer(load_model()[1])
grammar = compile_json_schema({"const": "the same text again and again"}, vocabulary)
first = grammar.matcher()
second = first.clone()
forced = first.forced_tokens()

def tokenize():
    for _ in range(300):
        assert first.forced_tokens() == forced

thread = threading.Thread(target=tokenize)
thread.start()
while thread.is_alive():
    assert second.accept(forced[0])
    second.rollback(1)
"""


def test_copies_of_a_matcher_do_not_wait_for_each_other_forever() -> None:
    """The tokenizer is Python, so a thread that waits for the lock of a copy must not hold the GIL."""
    subprocess.run([sys.executable, "-c", _CONCURRENT], check=True, timeout=60)
