"""Default token sets: sequence breakers of DRY, and tokens that XTC leaves unchanged."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from constrain.tokenizer import ExLlamaV2Tokenizer

_DRY_BREAKERS, _XTC_PROTECTED = frozenset('.,!?<>[](){}\n\t"'), frozenset("\n")
_found: WeakKeyDictionary[ExLlamaV2Tokenizer, dict[frozenset[str], frozenset[int]]] = WeakKeyDictionary()


def dry_breakers(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
    """Return the special tokens, and tokens with punctuation or line breaks."""
    return _special_or_with(tokenizer, _DRY_BREAKERS)


def xtc_protected(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
    """Return the special tokens, and tokens with line breaks."""
    return _special_or_with(tokenizer, _XTC_PROTECTED)


def _special_or_with(tokenizer: ExLlamaV2Tokenizer, chars: frozenset[str]) -> frozenset[int]:
    found = _found.setdefault(tokenizer, {})
    if chars not in found:
        pieces = tokenizer.get_id_to_piece_list(True)
        with_chars = {i for i, piece in enumerate(pieces) if not chars.isdisjoint(piece)}
        found[chars] = frozenset(with_chars | set(tokenizer.extended_id_to_piece))
    return found[chars]
