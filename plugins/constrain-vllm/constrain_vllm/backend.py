"""The back end: vLLM's requests compiled to grammars for the vocabulary of its model."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from constrain.engine import CompiledGrammar, Vocabulary
from constrain.engine.json_schema import WhitespacePolicy
from constrain.errors import GrammarError
from constrain.integrations.serving import BitmaskArray, ConstraintKind, OutputState, compile_constraint, vocabulary_of
from constrain_vllm.grammar import ConstrainGrammar

#: vLLM's ``StructuredOutputOptions``, by name.
KINDS: dict[str, ConstraintKind] = {
    "JSON": "json",
    "JSON_OBJECT": "json_object",
    "REGEX": "regex",
    "CHOICE": "choice",
    "GRAMMAR": "grammar",
    "STRUCTURAL_TAG": "structural_tag",
}

#: Names of the schemas in structural tags.
_SCHEMAS = ("schema", "json_schema")

#: Vocabularies by tokenizer, then by number of logits.
_vocabularies: WeakKeyDictionary[Any, dict[int, Vocabulary]] = WeakKeyDictionary()


class ConstrainBackend:
    """vLLM's ``StructuredOutputBackend``.

    Args:
        vllm_config: vLLM's configuration.
        tokenizer: the tokenizer of the model.
        vocab_size: number of the model's logits.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._config = vllm_config.structured_outputs_config
        self._vocabulary = model_vocabulary(vllm_config.model_config, tokenizer, vocab_size)
        self._array = BitmaskArray()

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: Collection[int] | None = None
    ) -> ConstrainGrammar:
        """Compile the constraint of a request.

        Args:
            request_type: a ``StructuredOutputOptions``.
            grammar_spec: the constraint, as text.
            stop_token_ids: tokens at which vLLM ends the output.

        Raises:
            GrammarError: it cannot be enforced.
        """
        grammar = compile_request(self._config, request_type, grammar_spec, self._vocabulary)
        return ConstrainGrammar(OutputState(grammar, stop_token_ids or ()), self._array)

    def allocate_token_bitmask(self, max_num_seqs: int) -> Any:
        """Return an int32 CPU tensor ``[max_num_seqs, ceil(vocab_size / 32)]`` that allows every token."""
        import torch

        bitmask = torch.full((max_num_seqs, (self.vocab_size + 31) // 32), -1, dtype=torch.int32)
        self._array.of(bitmask)
        return bitmask

    def destroy(self) -> None:
        """Nothing is to be released."""

    @staticmethod
    def is_tokenizer_supported(tokenizer: Any) -> bool:
        """Whether the tokens of a tokenizer have known bytes; vLLM refuses constraints otherwise."""
        return hasattr(tokenizer, "backend_tokenizer")


def compile_request(config: Any, request_type: Any, spec: str, vocabulary: Vocabulary) -> CompiledGrammar:
    """Compile the constraint of a request under vLLM's ``StructuredOutputsConfig``.

    Raises:
        GrammarError: it cannot be enforced.
    """
    kind = KINDS[request_type.name]
    if config.disable_additional_properties and kind in ("json", "structural_tag"):
        spec = _closed(spec, is_schema=kind == "json")
    whitespace: WhitespacePolicy = "compact" if config.disable_any_whitespace else "bounded"
    return compile_constraint(kind, spec, vocabulary, whitespace=whitespace)


def model_vocabulary(model_config: Any, tokenizer: Any, size: int) -> Vocabulary:
    """Read the vocabulary of vLLM's model, once, since vLLM reads the generation config anew each time.

    Raises:
        VocabularyError: its tokens have no fixed bytes.
    """
    known = _vocabularies.setdefault(tokenizer, {})
    if size not in known:
        known[size] = vocabulary_of(tokenizer, size, _eos_ids(model_config))
    return known[size]


def _eos_ids(model_config: Any) -> list[int]:
    generation: Any = model_config.try_get_generation_config() or {}
    ids = [generation.get("eos_token_id"), getattr(model_config.hf_text_config, "eos_token_id", None)]
    listed = [id_ for entry in ids for id_ in (entry if isinstance(entry, list) else [entry])]
    return [id_ for id_ in listed if id_ is not None]


def _closed(spec: str, is_schema: bool) -> str:
    """Return a schema, or a structural tag of such, whose objects have no other members than those that it lists."""
    from vllm.v1.structured_output.backend_guidance import process_for_additional_properties

    def close_within(node: Any) -> Any:
        if isinstance(node, list):
            return [close_within(each) for each in node]
        if not isinstance(node, dict):
            return node
        return {name: (close if name in _SCHEMAS else close_within)(value) for name, value in node.items()}

    close = process_for_additional_properties
    try:
        value = json.loads(spec)
        return json.dumps(close(value) if is_schema else close_within(value))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the constraint is not JSON: {error}") from error
