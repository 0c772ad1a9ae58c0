"""Vocabularies of tokenizers: every kind whose tokens have fixed bytes, and clear refusals of the rest."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from constrain.engine import Matcher, Vocabulary, compile_choices, compile_json_schema
from constrain.errors import VocabularyError

Allowed = Callable[[Matcher, int], list[int]]

PIECES = ["▁a", "a", "b", "▁", "ab", "é", "▁naïve", "{", "}", '"']


def byte_pieces() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]


def sentence_piece(bytes_: Iterable[str] | None = None, strips: bool = True) -> Tokenizer:
    """A tokenizer as those of the Llama 2 family: pieces with a mark for spaces, and single bytes for the rest."""
    pieces = ["<unk>", "<s>", "</s>", *(byte_pieces() if bytes_ is None else bytes_), *PIECES]
    model = models.BPE(
        {piece: i for i, piece in enumerate(pieces)}, [("a", "b")], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * strips
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def token_id(tokenizer: Tokenizer, piece: str) -> int:
    found = tokenizer.token_to_id(piece)
    assert found is not None
    return found


def save(folder: Path, tokenizer: Tokenizer | dict[str, Any], **files: Any) -> Path:
    text = tokenizer.to_str() if isinstance(tokenizer, Tokenizer) else json.dumps(tokenizer)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


# ---- Byte-level.


def test_byte_level(bpe_tokenizer: Tokenizer, tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, bpe_tokenizer, config={"eos_token_id": 0}))
    assert vocabulary.size == bpe_tokenizer.get_vocab_size()
    assert vocabulary.eos_token_ids == (0,)
    assert vocabulary.token_bytes(0) == b""
    assert {vocabulary.token_bytes(i) for i in range(vocabulary.size)} >= {bytes([byte]) for byte in range(256)}
    for text in ['{"a": 1}\n\t', "naïve café 東京 🙂\x00\x7f\x85"]:
        ids = bpe_tokenizer.encode(text).ids
        assert b"".join(map(vocabulary.token_bytes, ids)) == text.encode()


def test_a_byte_level_decoder_may_be_nested(bpe_tokenizer: Tokenizer, tmp_path: Path) -> None:
    description = json.loads(bpe_tokenizer.to_str())
    description["decoder"] = {
        "type": "Sequence",
        "decoders": [{"type": "Sequence", "decoders": [description["decoder"]]}, {"type": "Fuse"}],
    }
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, description, config={"eos_token_id": 0}))
    assert vocabulary.token_bytes(token_id(bpe_tokenizer, "Ġ")) == b" "


def test_added_tokens_are_text_unless_special(bpe_tokenizer: Tokenizer, tmp_path: Path, allowed: Allowed) -> None:
    tokenizer = Tokenizer.from_str(bpe_tokenizer.to_str())
    tokenizer.add_tokens([AddedToken("<tool é>", special=False)])
    tokenizer.add_special_tokens([AddedToken("<think>", special=True)])
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 0}))
    tool, think = token_id(tokenizer, "<tool é>"), token_id(tokenizer, "<think>")
    assert vocabulary.token_bytes(tool) == "<tool é>".encode()
    assert vocabulary.token_bytes(think) == b""
    assert think in vocabulary.special_token_ids
    matcher = compile_json_schema({"type": "string"}, vocabulary).matcher()
    assert matcher.accept_bytes(b'"')
    assert tool in allowed(matcher, vocabulary.size)
    assert think not in allowed(matcher, vocabulary.size)
    assert matcher.accept_bytes(b"<think>"), "as ordinary tokens it is text"


def test_a_special_token_is_no_text_even_where_its_id_is_in_the_base_vocabulary(
    bpe_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    description = json.loads(bpe_tokenizer.to_str())
    ids = token_id(bpe_tokenizer, "ids")
    description["added_tokens"].append({**description["added_tokens"][0], "id": ids, "content": "ids"})
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, description, config={"eos_token_id": 0}))
    assert vocabulary.token_bytes(ids) == b""
    assert ids in vocabulary.special_token_ids


def test_tokens_with_a_role_are_special(bpe_tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(bpe_tokenizer.to_str())
    tokenizer.add_tokens([AddedToken("<begin>", special=False), AddedToken("<fill>", special=False)])
    roles = {"bos_token": "<begin>", "pad_token": {"content": "<fill>"}, "eos_token": "<end>", "unk_token": None}
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, tokenizer, tokenizer_config=roles))
    begin, fill = token_id(tokenizer, "<begin>"), token_id(tokenizer, "<fill>")
    assert vocabulary.special_token_ids == {0, begin, fill}
    assert [vocabulary.token_bytes(i) for i in (0, begin, fill)] == [b"", b"", b""]
    assert vocabulary.eos_token_ids == (0,)


# ---- SentencePiece.


def test_sentence_piece(tmp_path: Path) -> None:
    tokenizer = sentence_piece()
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 2}))

    def text(piece: str) -> bytes:
        return vocabulary.token_bytes(token_id(tokenizer, piece))

    assert [text(piece) for piece in ("▁a", "▁", "▁naïve", "é")] == [b" a", b" ", " naïve".encode(), "é".encode()]
    assert [text(piece) for piece in ("<0x00>", "<0xE9>", "<0x0A>")] == [b"\0", b"\xe9", b"\n"]
    assert [text(piece) for piece in ("<unk>", "<s>", "</s>")] == [b"", b"", b""]


def test_byte_tokens_need_a_byte_fallback_decoder(tmp_path: Path) -> None:
    tokenizer = sentence_piece(["<0xZZ>", "<0x4>", *byte_pieces()])
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 2}))
    assert [vocabulary.token_bytes(i) for i in (3, 4, 5)] == [b"<0xZZ>", b"<0x4>", b"\x00"]
    pieces = {
        piece: i
        for i, piece in enumerate(["</s>", "<0x41>", *map(chr, range(0x80)), *"▁éïΕλάδαМосква東京한국어🙂👍🏽"])
    }
    plain = Tokenizer(models.BPE(pieces, []))
    plain.normalizer = normalizers.Replace(" ", "▁")
    plain.decoder = decoders.Metaspace(prepend_scheme="never")
    plain.add_special_tokens(["</s>"])
    with pytest.warns(UserWarning, match="bytes, 0x80 among them"):
        vocabulary = Vocabulary.from_pretrained(save(tmp_path, plain, config={"eos_token_id": 0}))
    assert vocabulary.token_bytes(1) == b"<0x41>"


@pytest.mark.parametrize(
    "strips, first_space, expected",
    [(True, "auto", True), (False, "auto", False), (True, "keep", False), (False, "optional", True)],
)
def test_the_first_space_may_be_dropped(
    strips: bool, first_space: Any, expected: bool, tmp_path: Path, allowed: Allowed
) -> None:
    tokenizer = sentence_piece(strips=strips)
    folder = save(tmp_path, tokenizer, config={"eos_token_id": 2})
    vocabulary = Vocabulary.from_pretrained(folder, first_space=first_space)
    matcher = compile_choices(["ab"], vocabulary).matcher()
    spaced = token_id(tokenizer, "▁a")
    assert (spaced in allowed(matcher, vocabulary.size)) == expected
    assert matcher.accept(token_id(tokenizer, "a"))
    assert spaced not in allowed(matcher, vocabulary.size)


def test_metaspace(tmp_path: Path) -> None:
    pieces = [("<unk>", 0.0), ("</s>", 0.0), *((piece, -1.0) for piece in [*byte_pieces(), *PIECES])]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    vocabulary = Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 1}))
    assert vocabulary.token_bytes(token_id(tokenizer, "▁a")) == b" a"
    assert vocabulary.token_bytes(token_id(tokenizer, "<0xFF>")) == b"\xff"


# ---- Ends and widths.


def test_ends_are_gathered_from_every_file(tmp_path: Path) -> None:
    tokenizer = sentence_piece()
    tokenizer.add_special_tokens(["<turn>", "<stop>"])
    turn, stop = token_id(tokenizer, "<turn>"), token_id(tokenizer, "<stop>")
    folder = save(
        tmp_path,
        tokenizer,
        config={"eos_token_id": [turn, 10**6]},
        generation_config={"eos_token_id": stop},
        tokenizer_config={"eos_token": {"content": "</s>"}},
    )
    assert Vocabulary.from_pretrained(folder).eos_token_ids == (2, turn, stop)


def test_without_an_end_there_is_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="no end-of-sequence token is known"):
        Vocabulary.from_pretrained(save(tmp_path, sentence_piece()))


@pytest.mark.parametrize("config, size, expected", [({}, 300, 300), ({"vocab_size": 290}, None, 290), ({}, None, 269)])
def test_the_width_is_the_models(config: dict[str, Any], size: int | None, expected: int, tmp_path: Path) -> None:
    folder = save(tmp_path, sentence_piece(), config={"eos_token_id": 2, **config})
    assert Vocabulary.from_pretrained(folder, size).size == expected


def test_from_a_loaded_tokenizer() -> None:
    config = SimpleNamespace(vocab_size=400, generation_config={"eos_token_id": [1, 2]})
    tokenizer = SimpleNamespace(
        hf_tokenizer=sentence_piece(), eos_token_id=2, config=config, tokenizer_config_dict=None
    )
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.size == 400
    assert vocabulary.eos_token_ids == (1, 2)
    assert vocabulary.token_bytes(1) == b""


# ---- Doubts.


def test_bytes_without_a_token_are_a_warning(tmp_path: Path) -> None:
    bytes_ = [piece for piece in byte_pieces() if piece not in ("<0x0B>", "<0xF4>")]
    folder = save(tmp_path, sentence_piece(bytes_), config={"eos_token_id": 2})
    with pytest.warns(UserWarning, match="2 bytes, 0x0b among them"):
        Vocabulary.from_pretrained(folder)


def test_a_complete_vocabulary_is_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Vocabulary.from_pretrained(save(tmp_path, sentence_piece(), config={"eos_token_id": 2}))


def test_word_piece_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(VocabularyError, match=r"decoder \(WordPiece\) is neither byte-level nor SentencePiece-like"):
        Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 0}))


def test_a_tokenizer_without_a_decoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"decoder \(none\)"):
        Vocabulary.from_pretrained(save(tmp_path, Tokenizer(models.BPE({"a": 0}, [])), config={"eos_token_id": 0}))


def test_a_tokenizer_that_changes_its_text_is_refused(bpe_tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(bpe_tokenizer.to_str())
    tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(VocabularyError, match="do not add up to the text"):
        Vocabulary.from_pretrained(save(tmp_path, tokenizer, config={"eos_token_id": 0}))


def test_a_tokenizer_that_loses_characters_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, sentence_piece(["<0x00>"]), config={"eos_token_id": 2})
    with pytest.raises(VocabularyError, match="do not add up to the text"):
        Vocabulary.from_pretrained(folder)


# ---- Malformed files.


def malformed() -> Iterable[Any]:
    good = json.loads(sentence_piece().to_str())
    vocabulary = good["model"]["vocab"]

    def model(**changes: Any) -> dict[str, Any]:
        return {**good, "model": {**good["model"], **changes}}

    yield pytest.param({}, id="empty")
    yield pytest.param({**good, "model": None}, id="no-model")
    yield pytest.param(model(vocab=3), id="vocabulary-is-a-number")
    yield pytest.param(model(vocab={**vocabulary, "a": "x"}), id="id-is-a-string")
    yield pytest.param(model(vocab={**vocabulary, "a": -5}), id="negative-id")
    yield pytest.param(model(vocab={**vocabulary, "a": 10**12}), id="absurd-id")
    yield pytest.param(model(type="Abacus"), id="unknown-model")
    yield pytest.param({**good, "added_tokens": [{}]}, id="added-token-without-id")
    yield pytest.param(
        {**good, "added_tokens": [{"id": 10**12, "content": "x", "special": True}]}, id="absurd-added-id"
    )
    yield pytest.param({**good, "added_tokens": 3}, id="added-tokens-are-a-number")
    yield pytest.param({**good, "decoder": []}, id="decoder-is-a-list")
    yield pytest.param({**good, "decoder": {"type": "Sequence"}}, id="sequence-of-nothing")


@pytest.mark.parametrize("description", list(malformed()))
def test_malformed_descriptions(description: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(VocabularyError):
        Vocabulary.from_pretrained(save(tmp_path, description, config={"eos_token_id": 2}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"], ids=range(6))
@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "generation_config.json", "tokenizer_config.json"])
def test_files_that_are_no_json_objects(name: str, text: bytes, tmp_path: Path) -> None:
    folder = save(tmp_path, sentence_piece(), config={"eos_token_id": 2})
    (folder / name).write_bytes(text)
    with pytest.raises(VocabularyError, match=name):
        Vocabulary.from_pretrained(folder)


@pytest.mark.parametrize(
    "config",
    [{"vocab_size": "many"}, {"vocab_size": -1}, {"vocab_size": 10**15}, {"text_config": 3}, {"vocab_size": 2.5}],
    ids=str,
)
def test_malformed_configs(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(VocabularyError):
        Vocabulary.from_pretrained(save(tmp_path, sentence_piece(), config={"eos_token_id": 2, **config}))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"tokenizer\.json does not exist"):
        Vocabulary.from_pretrained(tmp_path)


# ---- The cache on disk.


@pytest.fixture
def cached_folder(tmp_path: Path, bpe_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONSTRAIN_CACHE_DIR", str(tmp_path / "cache"))
    return save(tmp_path, bpe_tokenizer, config={"eos_token_id": 0})


def refuse_to_load(path: Path) -> Tokenizer:
    raise AssertionError(f"{path} was loaded")


def test_a_cached_vocabulary_is_the_one_that_was_read(cached_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Vocabulary.from_pretrained(cached_folder, size=700)
    with monkeypatch.context() as patch:
        patch.setattr("constrain.engine.vocabulary._load_tokenizer", refuse_to_load)
        again = Vocabulary.from_pretrained(cached_folder, size=700)
    assert repr(again) == repr(first)
    assert again.special_tokens == first.special_tokens
    assert again.special_token_ids == first.special_token_ids
    assert again.core.first_space_optional == first.core.first_space_optional
    assert [again.token_bytes(i) for i in range(700)] == [first.token_bytes(i) for i in range(700)]
    # The tokenizer is loaded once a text has to be encoded.
    forced = [
        compile_choices(['{"name": "A"}', '{"name": "B"}'], one).matcher().forced_tokens() for one in (first, again)
    ]
    assert forced[0] == forced[1] != []


def test_a_cached_vocabulary_is_not_used_for_other_files_and_arguments(
    cached_folder: Path, bpe_tokenizer: Tokenizer
) -> None:
    assert Vocabulary.from_pretrained(cached_folder).eos_token_ids == (0,)
    assert Vocabulary.from_pretrained(cached_folder, size=650).size == 650
    save(cached_folder, bpe_tokenizer, config={"eos_token_id": 0, "vocab_size": 660})
    assert Vocabulary.from_pretrained(cached_folder).size == 660


def test_a_damaged_file_of_the_cache_is_written_again(cached_folder: Path) -> None:
    first = Vocabulary.from_pretrained(cached_folder)
    (file,) = (cached_folder / "cache").iterdir()
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"eos": [0]', b'"eos": [9]'))
    assert Vocabulary.from_pretrained(cached_folder).eos_token_ids == first.eos_token_ids
    assert file.read_bytes() == content
