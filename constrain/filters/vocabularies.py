"""The engine's vocabularies of tokenizers, one for each."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from constrain.engine import Vocabulary

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

_vocabularies: WeakKeyDictionary[ExLlamaV2Tokenizer, Vocabulary] = WeakKeyDictionary()
_vocabularies_lock = Lock()


def vocabulary_of(tokenizer: ExLlamaV2Tokenizer) -> Vocabulary:
    """Return the engine's vocabulary of a tokenizer, as wide as the model's logits; cached as long as the tokenizer."""
    # Objects that are not tokenizers may not be hashable; from_tokenizer refuses them.
    with _vocabularies_lock:  # of threads that want the same one, one makes it
        vocabulary = _vocabularies.get(tokenizer) if hasattr(tokenizer, "hf_tokenizer") else None
        if vocabulary is None:
            vocabulary = Vocabulary.from_tokenizer(tokenizer)
            _vocabularies[tokenizer] = vocabulary
        return vocabulary


def is_same_vocabulary(one: Vocabulary, other: Vocabulary) -> bool:
    """Return whether two vocabularies have the same tokens."""
    return one is other or (one.size == other.size and one.digest == other.digest)
