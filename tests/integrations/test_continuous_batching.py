from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from constrain.engine import CompiledGrammar, Vocabulary, compile_json_schema, compile_regex
from constrain.errors import ArgumentError
from constrain.tokenizer import ExLlamaV2Tokenizer

pytest.importorskip("transformers.generation.continuous_batching.cb_logits_processors")
from constrain.integrations.continuous_batching import ContinuousBatchingConstraints

PATTERN = r"(yes|no|maybe so)( [a-f]{2,4}){1,3}!"
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "note": {"type": "string"}},
    "required": ["ok", "note"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def vocabulary(tiny_dir: Path) -> Vocabulary:
    return Vocabulary.from_pretrained(tiny_dir)


@pytest.fixture(scope="module")
def answer(vocabulary: Vocabulary) -> CompiledGrammar:
    return compile_regex(PATTERN, vocabulary)


@pytest.fixture
def manager(tiny_dir: Path) -> Any:
    """A manager with constraints."""
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_dir).eval()
    manager = model.init_continuous_batching(
        generation_config=transformers.GenerationConfig(do_sample=False, eos_token_id=1, pad_token_id=2),
        continuous_batching_config=transformers.ContinuousBatchingConfig(
            num_blocks=32, max_batch_tokens=64, use_async_batching=False, use_cuda_graph=False
        ),
    )
    ContinuousBatchingConstraints().install(manager)
    manager.start()
    yield manager
    manager.stop(block=True)


def results(manager: Any, count: int) -> dict[str, Any]:
    found = [manager.get_result(timeout=60) for _ in range(count)]
    return {result.request_id: result for result in found}


def test_each_request_has_its_constraint(
    manager: Any, vocabulary: Vocabulary, answer: CompiledGrammar, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    record = compile_json_schema(SCHEMA, vocabulary)
    prompt = tiny_tokenizer.encode("Extract: all is red")[0].tolist()
    requests = [
        manager.add_request(prompt, max_new_tokens=40, constraint=answer),
        manager.add_request(prompt, max_new_tokens=record.matcher().min_tokens() + 2, constraint=record),
        manager.add_request(prompt, max_new_tokens=5),
    ]
    found = results(manager, 3)
    first, second = (tiny_tokenizer.decode(torch.tensor(found[name].generated_tokens)) for name in requests[:2])
    assert re.fullmatch(PATTERN, first)
    assert json.loads(second).keys() == {"ok", "note"}
    assert not found[requests[2]].error


def test_a_request_with_a_wrong_constraint_fails_alone(manager: Any, answer: CompiledGrammar) -> None:
    requests = [manager.add_request([3, 4], max_new_tokens=40, constraint=each) for each in ("answer", answer)]
    found = results(manager, 2)
    assert "CompiledGrammar" in str(found[requests[0]].error)
    assert found[requests[1]].generated_tokens and not found[requests[1]].error


def test_an_interrupted_request_goes_on_where_it_was(answer: CompiledGrammar) -> None:
    from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState

    def mask(request: Any) -> torch.Tensor:
        constraints = ContinuousBatchingConstraints()
        rows = constraints.prepare_tensor_args([FutureRequestState(request, True, {}, 1)])
        return constraints(torch.zeros(1, answer.vocabulary.size), rows)

    request = RequestState("one", [3, 4], max_new_tokens=40, logit_processor_kwargs={"constraint": answer})
    for _ in range(6):
        request.generated_tokens.append(int(mask(request).argmax()))
        assert mask(request.create_equivalent_initial_request()).equal(mask(request))


def test_batches_that_are_prepared_ahead_are_refused() -> None:
    class Manager:
        continuous_batching_config = transformers.ContinuousBatchingConfig(use_async_batching=True)

    with pytest.raises(ArgumentError, match="use_async_batching=False"):
        ContinuousBatchingConstraints().install(Manager())
