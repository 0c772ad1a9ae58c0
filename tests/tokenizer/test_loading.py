from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from constrain.errors import TokenizerError, TokenizerNotFound
from constrain.tokenizer import ExLlamaV2Tokenizer

Load = Callable[..., ExLlamaV2Tokenizer]
Save = Callable[..., Path]


def test_the_backend_object(sentencepiece: ExLlamaV2Tokenizer) -> None:
    backend = sentencepiece.tokenizer
    assert backend is sentencepiece.tokenizer_model
    assert backend.vocab is None
    pieces = dict(backend.enumerate_tokens())
    assert backend.vocab == list(pieces.values()) and len(pieces) == backend.vocab_size()
    the = backend.piece_to_id("▁the")
    assert backend.id_to_piece(the) == "▁the" and pieces[the or 0] == " the"
    assert backend.id_to_piece(None) == backend.id_to_piece(10**6) == ""
    assert backend.space_char() == "▁" and backend.newline_char() == "\n"
    assert backend.clean_special_chars("▁the") == " the"
    assert (backend.unk_id(), backend.unk_token(), backend.eos_id()) == (0, "<unk>", None)
    assert backend.hf_tokenizer.get_vocab_size() == backend.vocab_size()


def test_roles_come_from_the_model_config_first(save_byte_level: Save, load: Load) -> None:
    folder = save_byte_level({"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer = load(folder, bos_token_id=5, eos_token_id=6, pad_token_id=7)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (5, 6, 7)


def test_roles_without_any_config(save_sentencepiece: Save, load: Load) -> None:
    tokenizer = load(save_sentencepiece())
    assert tokenizer.tokenizer_config_dict is None
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == ("<s>", "</s>", "<unk>")


def test_a_null_role_is_no_role(with_tool_token: ExLlamaV2Tokenizer) -> None:
    assert with_tool_token.bos_token_id is None and with_tool_token.bos_token == ""
    assert with_tool_token.encode("the", add_bos=True).tolist() == with_tool_token.encode("the").tolist()


def test_padding_falls_back_to_the_conventional_name(save_byte_level: Save, load: Load) -> None:
    assert load(save_byte_level({"bos_token": "<s>", "eos_token": "</s>"})).pad_token_id == 2


def test_the_conventional_padding_may_have_id_0(load: Load, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}, unk_token="<unk>"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).pad_token_id == 0


def test_there_is_no_padding_where_begin_and_end_are_one_token(save_sentencepiece: Save, load: Load) -> None:
    assert load(save_sentencepiece({"bos_token": "</s>", "eos_token": "</s>"})).pad_token_id == -1


def test_truncation_and_padding_of_the_file_are_ignored(save_byte_level: Save, load: Load) -> None:
    def limit(base: Tokenizer) -> None:
        base.enable_truncation(2)
        base.enable_padding(length=64)

    tokenizer = load(save_byte_level(edit=limit))
    assert tokenizer.decode(tokenizer.encode("the theory of things")) == ["the theory of things"]


def test_instances_are_keys_and_class_tables_may_be_assigned(
    byte_level: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @lru_cache
    def size(tokenizer: ExLlamaV2Tokenizer) -> int:
        return tokenizer.actual_vocab_size

    assert size(byte_level) == size(byte_level) and size.cache_info().hits == 1
    monkeypatch.setattr(ExLlamaV2Tokenizer, "extended_id_to_piece", {}, raising=False)
    assert ExLlamaV2Tokenizer(byte_level.config).extended_id_to_piece[0] == "<s>"


def _no_file(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _sentencepiece_only(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")


def _not_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 1}')


def _truncated(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])


def _pointer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1f\nsize 9\n")


def test_a_file_that_may_not_be_read(save_byte_level: Save, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise Exception("Permission denied (os error 13)")

    folder = save_byte_level()
    monkeypatch.setattr(Tokenizer, "from_file", refused)
    monkeypatch.setattr(Path, "open", lambda *_: open("/no/such/file"))  # noqa: PTH123, SIM115
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: the tokenizers library cannot read it \(Permission"):
        load(folder)


def _settings_are_a_list(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("[]")


def _settings_are_nested_too_deeply(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("[" * 100_000)


def _absurd_added_id(folder: Path) -> None:
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": 10**15}))


def _added_id_is_text(folder: Path) -> None:
    (folder / "added_tokens.json").write_text(json.dumps({"<x>": "many"}))


def _absurd_id(folder: Path) -> None:
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["vocab"]["zzz"] = 4_000_000_000
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_no_file, "tokenizer.json: no such file"),
        (
            _sentencepiece_only,
            "tokenizer.json: no such file; .* transformers makes one of tokenizer.model: AutoTokenizer",
        ),
        (_not_a_tokenizer, "tokenizer.json: the tokenizers library cannot read it"),
        (_truncated, "tokenizer.json: the tokenizers library cannot read it"),
        (_pointer, "tokenizer.json: a pointer of Git LFS in place of the file"),
        (_settings_are_a_list, "tokenizer_config.json: must hold a JSON object"),
        (_settings_are_nested_too_deeply, "tokenizer_config.json: JSON nested too deeply"),
        (_absurd_id, "tokenizer.json has token id 4000000000; ids up to 16777216 are read"),
        (_absurd_added_id, "added_tokens.json: 1000000000000000 is not a token id"),
        (_added_id_is_text, "added_tokens.json: 'many' is not a token id"),
    ],
)
def test_damaged_folders(save_byte_level: Save, load: Load, damage: Callable[[Path], None], message: str) -> None:
    folder = save_byte_level()
    damage(folder)
    with pytest.raises(TokenizerError, match=message):
        load(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token": "\ud800", "pad_token": {"content": "\udfff"}},
        {"added_tokens_decoder": {"7": "<s>", "x": "y", "8": ["z"], "9": None}},
    ],
)
def test_settings_that_say_nothing_are_passed_over(
    save_byte_level: Save, load: Load, settings: dict[str, object]
) -> None:
    tokenizer = load(save_byte_level({"bos_token": None, **settings}))
    assert tokenizer.bos_token_id is None and tokenizer.decode(tokenizer.encode("the theme")) == ["the theme"]


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path, load: Load) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path)
    assert isinstance(caught.value, TokenizerNotFound)


def test_a_tokenizer_larger_than_the_model_is_refused(save_byte_level: Save, load: Load) -> None:
    with pytest.raises(TokenizerError, match=r"token id 279, but config.json has vocab_size 100"):
        load(save_byte_level(), vocab_size=100)


def test_sentencepiece_models_are_not_read(byte_level: ExLlamaV2Tokenizer, load: Load) -> None:
    with pytest.raises(TokenizerError, match="SentencePiece"):
        ExLlamaV2Tokenizer(byte_level.config, force_spm=True)
    with pytest.raises(TokenizerError, match="model_dir"):
        load(None)
