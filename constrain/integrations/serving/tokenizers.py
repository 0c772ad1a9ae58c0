"""Vocabularies of the tokenizers that inference servers have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from constrain.arguments import type_with_article
from constrain.engine import Vocabulary
from constrain.engine.tokens import ROLES
from constrain.errors import VocabularyError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass
class _Tokenizer:
    """A tokenizer as :meth:`Vocabulary.from_tokenizer` wants it."""

    hf_tokenizer: Tokenizer
    eos_token_id: int | None
    tokenizer_config_dict: dict[str, Any] | None
    config: Any


def vocabulary_of(tokenizer: Any, size: int | None = None, eos_ids: Iterable[int] = ()) -> Vocabulary:
    """Read the vocabulary of a fast tokenizer of transformers.

    Args:
        tokenizer: the tokenizer, a ``PreTrainedTokenizerFast`` or a wrapper with its attributes.
        size: number of the model's logits; by default of the tokenizer's tokens.
        eos_ids: further end-of-sequence tokens, such as those of ``generation_config.json``.

    Raises:
        VocabularyError: it is no fast tokenizer, or its tokens have no fixed bytes.
    """
    import tokenizers

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise VocabularyError(f"a fast tokenizer of transformers is needed, not {type_with_article(tokenizer)}")
    # A copy: the server may use its tokenizer in other threads, and with truncation.
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    names = {role: getattr(tokenizer, role, None) for role in ROLES}
    settings = {role: str(name) for role, name in names.items() if name is not None}
    config = SimpleNamespace(vocab_size=None, generation_config={"eos_token_id": sorted(set(eos_ids))})
    return Vocabulary.from_tokenizer(_Tokenizer(copy, tokenizer.eos_token_id, settings, config), size)
