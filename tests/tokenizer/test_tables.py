from __future__ import annotations

from collections.abc import Iterator

from constrain.tokenizer import ExLlamaV2Tokenizer
from constrain.tokenizer.pieces import HOLE
from constrain.tokenizer.tries import Trie


def test_pieces_in_the_middle_of_a_text(tokenizer: ExLlamaV2Tokenizer) -> None:
    pieces = tokenizer.get_id_to_piece_list()
    assert len(pieces) == tokenizer.actual_vocab_size == tokenizer.get_vocab_size()
    text = "the the theory, world"
    joined = "".join(pieces[idx] for idx in tokenizer.encode(text)[0].tolist())
    assert joined.removeprefix(" ") == text
    assert pieces[tokenizer.single_id(" the") or 0] == " the"


def test_parts_of_a_character_have_no_text_of_their_own(tokenizer: ExLlamaV2Tokenizer) -> None:
    pieces = tokenizer.get_id_to_piece_list()
    fragments = [pieces[idx] for idx in tokenizer.encode("😀")[0].tolist()]
    assert fragments[-4:] == ["\ufffd"] * 4


def test_special_tokens_show_only_in_the_special_list(byte_level: ExLlamaV2Tokenizer) -> None:
    assert byte_level.get_id_to_piece_list()[:3] == ["", "", ""]
    assert byte_level.get_id_to_piece_list(True)[:3] == ["<s>", "</s>", "<pad>"]
    assert byte_level.get_id_to_piece_list(True)[3:] == byte_level.get_id_to_piece_list()[3:]


def test_tokens_beyond_the_backend_show_and_holes_do_not(with_tool_token: ExLlamaV2Tokenizer) -> None:
    known = with_tool_token.tokenizer_model.vocab_size()
    pieces = with_tool_token.get_id_to_piece_list()
    assert pieces[known - 1 :] == ["<tool>", HOLE, "<side>"]


def test_piece_to_id_takes_the_highest_of_duplicates(tokenizer: ExLlamaV2Tokenizer) -> None:
    pieces = tokenizer.get_id_to_piece_list()
    for piece, idx in tokenizer.get_piece_to_id_dict().items():
        assert idx == max(other for other, same in enumerate(pieces) if same == piece)


def test_prefix_tables(tokenizer: ExLlamaV2Tokenizer) -> None:
    ids = {piece: idx for piece, idx in tokenizer.get_piece_to_id_dict().items() if piece}
    table, by_id = tokenizer.get_prefix_to_ids_dict(), tokenizer.get_prefix_id_to_ids_dict()
    assert table.keys() == ids.keys()
    for prefix in ("t", " t", " the", "w"):
        if prefix in ids:
            assert table[prefix] == sorted(idx for piece, idx in ids.items() if piece.startswith(prefix))
            assert by_id[ids[prefix]] == table[prefix]
    assert by_id[tokenizer.eos_token_id or 0] == [tokenizer.eos_token_id]
    assert len(by_id) == tokenizer.actual_vocab_size


def test_the_prefix_table_covers_the_vocabulary_of_the_model(byte_level: ExLlamaV2Tokenizer) -> None:
    byte_level.config.vocab_size = 512  # type: ignore[misc]
    assert byte_level.get_prefix_id_to_ids_dict()[511] == [511]


def test_tries_hold_every_piece(tokenizer: ExLlamaV2Tokenizer) -> None:
    def walk(node: Trie, text: str = "") -> Iterator[tuple[str, list[int]]]:
        yield text, node.leaf
        for char, child in node.children.items():
            yield from walk(child, text + char)

    pieces = tokenizer.get_id_to_piece_list()
    assert {idx: text for text, leaf in walk(tokenizer.get_char_trie()) for idx in leaf} == {
        idx: piece for idx, piece in enumerate(pieces) if piece
    }
    folded = {idx: text for text, leaf in walk(tokenizer.get_char_trie_ci()) for idx in leaf}
    assert folded == {idx: piece.lower() for idx, piece in enumerate(pieces) if piece}


def test_codes_of_single_characters(tokenizer: ExLlamaV2Tokenizer) -> None:
    ords = tokenizer.get_id_to_ord_list()
    for char in "\n ,":
        assert ords[tokenizer.encode(char)[0, -1]] == ord(char)
    assert ords[tokenizer.single_id(" the") or 0] == -1


def test_single_tokens(byte_level: ExLlamaV2Tokenizer) -> None:
    assert byte_level.single_id("</s>") == byte_level.eos_token_id == 1
    assert byte_level.single_id("no such token") is None
    assert byte_level.single_token(7).tolist() == [[7]]
    assert byte_level.newline_token_id == byte_level.encode("\n")[0, -1]


def test_tables_built_at_once_equal_those_built_on_use(byte_level: ExLlamaV2Tokenizer) -> None:
    eager = ExLlamaV2Tokenizer(byte_level.config, lazy_init=False)
    assert eager.get_prefix_id_to_ids_dict() == byte_level.get_prefix_id_to_ids_dict()
    assert eager.get_id_to_piece_list() is eager.get_id_to_piece_list()
