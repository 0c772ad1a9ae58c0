from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from constrain.engine import CompiledGrammar, Vocabulary, compile_json_schema, compile_regex
from constrain.errors import ArgumentError, BudgetError, GenerationError
from constrain.integrations.transformers import ConstraintLogitsProcessor
from constrain.tokenizer import ExLlamaV2Tokenizer

PATTERN = r"(yes|no|maybe so)( [a-f]{2,4}){1,3}!"
SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3},
    },
    "required": ["ok", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tiny_dir: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(tiny_dir).eval()


@pytest.fixture(scope="module")
def grammar(tiny_dir: Path) -> CompiledGrammar:
    return compile_regex(PATTERN, Vocabulary.from_pretrained(tiny_dir))


class Writer:
    """Runs ``generate`` over texts, and gives what was written behind each."""

    def __init__(self, model: Any, tokenizer: ExLlamaV2Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    def __call__(self, processor: Any, *prompts: str, **options: Any) -> list[str]:
        ids = self.tokenizer.encode(list(prompts))
        mask = (ids != self.tokenizer.pad_token_id).long()
        torch.manual_seed(0)
        options = {"max_new_tokens": 100, "eos_token_id": 1, "pad_token_id": 2, **options}
        written = self.model.generate(ids, attention_mask=mask, logits_processor=[processor], **options)
        texts: list[str] = self.tokenizer.decode(written[:, ids.shape[1] :])
        return texts


@pytest.fixture(scope="module")
def write(model: Any, tiny_tokenizer: ExLlamaV2Tokenizer) -> Writer:
    return Writer(model, tiny_tokenizer)


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": True, "temperature": 2.0},
        {"do_sample": False, "num_beams": 4, "num_return_sequences": 3},
        {"do_sample": True, "num_beams": 3},
        {"do_sample": True, "num_return_sequences": 4},
    ],
    ids=["greedy", "sampled", "beams", "sampled beams", "several"],
)
def test_everything_written_is_in_the_language(write: Writer, grammar: CompiledGrammar, options: Any) -> None:
    processor = ConstraintLogitsProcessor(grammar)
    for prompts in (["hello"], ["Yes please!", "a", "the lazy dog, 12 345"], ["hello"]):
        texts = write(processor, *prompts, **options)
        assert len(texts) == len(prompts) * options.get("num_return_sequences", 1)
        assert all(re.fullmatch(PATTERN, text) for text in texts), texts


def test_rows_of_a_batch_are_what_they_are_alone(write: Writer, tiny_dir: Path) -> None:
    grammar = compile_json_schema(SCHEMA, Vocabulary.from_pretrained(tiny_dir))
    processor = ConstraintLogitsProcessor(grammar)
    prompts = ["Extract: all is red", "no"]
    together = write(processor, *prompts, do_sample=False)
    assert together == [write(processor, prompt, do_sample=False)[0] for prompt in prompts]
    assert all(set(json.loads(text)) == {"ok", "tags"} for text in together)


def test_an_assistant_may_draft(write: Writer, grammar: CompiledGrammar, model: Any) -> None:
    processor = ConstraintLogitsProcessor(grammar)
    (alone,) = write(processor, "hello", do_sample=False)
    (assisted,) = write(processor, "hello", do_sample=False, assistant_model=model)
    assert assisted == alone


def test_a_call_that_was_cut_off_leaves_nothing_behind(
    write: Writer, grammar: CompiledGrammar, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    processor = ConstraintLogitsProcessor(grammar)
    ids = tiny_tokenizer.encode("hello")
    cut = write.model.generate(ids, max_new_tokens=4, logits_processor=[processor], do_sample=False, pad_token_id=2)
    (text,) = write(processor, "hello", do_sample=False)
    assert re.fullmatch(PATTERN, text) and text.startswith(tiny_tokenizer.decode(cut[0, ids.shape[1] :]))


def first_allowed(processor: ConstraintLogitsProcessor, ids: list[int], width: int) -> set[int]:
    scores = processor(torch.tensor([ids]), torch.zeros(1, width))
    return set(torch.nonzero(scores[0] == 0).flatten().tolist())


def test_texts_that_go_on_are_told_from_new_ones(grammar: CompiledGrammar, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    processor, width = ConstraintLogitsProcessor(grammar), grammar.vocabulary.size
    prompt = tiny_tokenizer.encode("hello")[0].tolist()
    start = first_allowed(processor, prompt, width)
    token = min(start)
    after = first_allowed(processor, [*prompt, token], width)
    assert after != start
    # The same prompt again, one that the grammar would not have gone on with, and one that goes on by two tokens.
    excluded = next(i for i in range(3, width) if i not in start)
    assert first_allowed(processor, prompt, width) == start
    assert first_allowed(processor, [*prompt, excluded], width) == start
    assert first_allowed(processor, [*prompt, token, token], width) == start
    processor.reset()
    assert first_allowed(processor, [*prompt, token], width) == start


def test_a_complete_text_is_not_gone_on_with(write: Writer, grammar: CompiledGrammar) -> None:
    """Here ``generate`` is not told which token ends a text, so it writes on."""
    (text,) = write(ConstraintLogitsProcessor(grammar), "hello", do_sample=False, eos_token_id=None)
    assert re.fullmatch(PATTERN, text)


def test_scores_wider_than_the_vocabulary(grammar: CompiledGrammar) -> None:
    processor, width = ConstraintLogitsProcessor(grammar), grammar.vocabulary.size
    scores = torch.zeros(1, width + 40)
    masked = processor(torch.tensor([[3]]), scores)
    assert not scores.any() and masked.shape == scores.shape
    assert (masked[0, width:] == -torch.inf).all() and (masked[0, :width] == 0).any()
    with pytest.raises(GenerationError, match=f"vocabulary of {width} tokens, but the model gives scores for 8"):
        processor(torch.tensor([[3]]), torch.zeros(1, 8))


@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_complete_within_max_new_tokens(write: Writer, tiny_dir: Path, beams: int) -> None:
    grammar = compile_json_schema(SCHEMA, Vocabulary.from_pretrained(tiny_dir))
    needed = grammar.matcher().min_tokens()
    for limit in (needed, needed + 3):
        processor = ConstraintLogitsProcessor(grammar, max_new_tokens=limit)
        (text,) = write(processor, "Extract: all is red", max_new_tokens=limit, do_sample=False, num_beams=beams)
        assert json.loads(text).keys() == {"ok", "tags"}
    with pytest.raises(BudgetError):
        write(ConstraintLogitsProcessor(grammar, max_new_tokens=needed - 1), "no", do_sample=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_scores_of_every_type_are_masked(grammar: CompiledGrammar, dtype: torch.dtype) -> None:
    size = grammar.vocabulary.size
    scores = torch.zeros(size + 3, 1, dtype=dtype).T
    masked = ConstraintLogitsProcessor(grammar)(torch.tensor([[1, 2]]), scores)
    expected = ConstraintLogitsProcessor(grammar)(torch.tensor([[1, 2]]), scores.float())
    assert masked.dtype == dtype
    assert torch.equal(masked.isinf(), expected.isinf())
    assert 0 < masked.isinf().sum() < size


@pytest.mark.parametrize("scores", [torch.zeros(1, 9999, dtype=torch.int64), torch.zeros(2, 9999), torch.zeros(9999)])
def test_scores_that_do_not_fit_are_refused(grammar: CompiledGrammar, scores: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match="must be floating-point numbers"):
        ConstraintLogitsProcessor(grammar)(torch.tensor([[1, 2]]), scores)
