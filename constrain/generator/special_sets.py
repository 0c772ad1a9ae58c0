"""Default token sets: sequence breakers of DRY, and tokens that XTC leaves unchanged."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from constrain.tokenizer import ExLlamaV2Tokenizer

_DRY_BREAKERS = frozenset('.,!?<>[](){}\n\t"')
_dry_breakers: WeakKeyDictionary[ExLlamaV2Tokenizer, set[int]] = WeakKeyDictionary()
_xtc_protected: WeakKeyDictionary[ExLlamaV2Tokenizer, frozenset[int]] = WeakKeyDictionary()


def dry_breakers(tokenizer: ExLlamaV2Tokenizer) -> set[int]:
    """Return the special tokens, and tokens with punctuation or line breaks."""
    if tokenizer not in _dry_breakers:
        _dry_breakers[tokenizer] = _special_or_with(tokenizer, _DRY_BREAKERS)
    return _dry_breakers[tokenizer]


def xtc_protected(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
    """Return the special tokens, and tokens with line breaks."""
    if tokenizer not in _xtc_protected:
        _xtc_protected[tokenizer] = frozenset(_special_or_with(tokenizer, frozenset("\n")))
    return _xtc_protected[tokenizer]


def _special_or_with(tokenizer: ExLlamaV2Tokenizer, chars: frozenset[str]) -> set[int]:
    pieces = tokenizer.get_id_to_piece_list(True)
    found = {i for i, piece in enumerate(pieces) if not chars.isdisjoint(piece)}
    return found | set(tokenizer.extended_id_to_piece)
