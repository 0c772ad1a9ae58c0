"""Files of texts, and windows in which every token counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from constrain import ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.errors import ArgumentError
from constrain.quantization import Text, read_texts
from constrain.quantization.texts import Window, listed, windows_of


@pytest.fixture(scope="module")
def tokenizer(tiny_dir: Path) -> ExLlamaV2Tokenizer:
    return ExLlamaV2Tokenizer(ExLlamaV2Config(tiny_dir))


def counted(windows: list[Window]) -> list[int]:
    return [token for window in windows for token in window.ids[window.first :].tolist()]


def test_a_file_is_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('"one"\n\n"two"')
    assert read_texts(tmp_path / "a.txt") == [Text('"one"\n\n"two"')]


def test_lines_of_json_are_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"one\\ntwo"\n\n{"text": "three", "id": 3}\n{"prompt": "p", "text": "four"}\n')
    assert read_texts(tmp_path / "a.jsonl") == [Text("one\ntwo"), Text("three"), Text("four", "p")]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    for name, content in (("a.txt", "one"), ("a.jsonl", '"one"\n')):
        (tmp_path / name).write_text(content, encoding="utf-8-sig")
        assert read_texts(tmp_path / name) == [Text("one")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'"a"\n[1]\n', r"line 2 of .*a\.jsonl is no text: give \"TEXT\""),
        (b'{"prompt": "p"}', "line 1 of .* is no text"),
        (b'{"text": "t", "prompt": 3}', "line 1 of .*: prompt must be a str, not 3"),
        (b'"\\ud800"', "line 1 of .*: text is no text, because of a lone surrogate"),
        (b"one", "line 1 of .* is not JSON"),
        (b"\xff", "cannot be read as UTF-8 text"),
    ],
)
def test_other_lines_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        read_texts(tmp_path / "a.jsonl")


def test_texts_may_be_given_in_several_ways() -> None:
    assert listed("a") == listed(["a"]) == listed(Text("a")) == [Text("a")]
    with pytest.raises(ArgumentError, match=r"texts\[1\] must be a str, not 3"):
        listed(["a", 3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="texts must be a text or several, not 3"):
        listed(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("context", "stride"), [(2, 1), (8, 3), (8, 7), (9, 1), (100, 50)])
@pytest.mark.parametrize("bos", [True, False])
def test_each_token_counts_once(
    tokenizer: ExLlamaV2Tokenizer, monkeypatch: pytest.MonkeyPatch, context: int, stride: int, bos: bool
) -> None:
    text = "hello there, the quick brown fox jumps over the lazy dog; yes, please!"
    ids = tokenizer.encode_prompt(text)[0].tolist()
    if not bos:
        monkeypatch.setattr(tokenizer, "bos_token_id", None)
    windows = windows_of(tokenizer, [Text(text)], context, stride)
    assert counted(windows) == (ids if bos else ids[1:])
    assert all(2 <= len(window.ids) <= context and 1 <= window.first < len(window.ids) for window in windows)
    assert all(window.first >= context - stride for window in windows[1:])
    assert not bos or all(window.ids[0] == tokenizer.bos_token_id for window in windows)


@pytest.mark.parametrize("context", [4, 12, 100])
def test_a_prompt_does_not_count(tokenizer: ExLlamaV2Tokenizer, context: int) -> None:
    text = Text("jumps over the lazy dog", prompt="The quick brown fox")
    ids = tokenizer.encode_prompt(text.text)[0].tolist()
    assert counted(windows_of(tokenizer, [text, text], context, context // 2)) == [*ids, *ids]


def test_names_of_special_tokens_are_tokens(tokenizer: ExLlamaV2Tokenizer) -> None:
    (window,) = windows_of(tokenizer, [Text("hello</s>")], 64, 32)
    hello = tokenizer.encode_prompt("hello")[0].tolist()
    assert window.ids.tolist() == [tokenizer.bos_token_id, *hello, tokenizer.eos_token_id]


def test_no_more_windows_than_asked_for(tokenizer: ExLlamaV2Tokenizer) -> None:
    texts = [Text("hello there, the quick brown fox")] * 20
    windows = windows_of(tokenizer, texts, 8, 4, max_tokens=30)
    assert 30 <= sum(window.scored for window in windows) < 38
    assert windows_of(tokenizer, [Text("")], 8, 4) == []


@pytest.mark.parametrize(
    ("context", "stride", "message"),
    [
        (1, 1, "context must be a whole number of at least 2, not 1"),
        (8, 8, "stride must be a whole number from 1 to 7, not 8"),
        (8, 0, "stride must be a whole number from 1 to 7, not 0"),
    ],
)
def test_windows_have_bounds(tokenizer: ExLlamaV2Tokenizer, context: int, stride: int, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        windows_of(tokenizer, [Text("hello")], context, stride)
