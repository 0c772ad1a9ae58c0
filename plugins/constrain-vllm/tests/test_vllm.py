"""The places in vLLM that the plugin takes, and the interface that it implements, in the version that is installed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from constrain_vllm.backend import KINDS, ConstrainBackend
from constrain_vllm.grammar import ConstrainGrammar

types = pytest.importorskip("vllm.v1.structured_output.backend_types", reason="vLLM is not installed")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ConstrainBackend, types.StructuredOutputBackend), (ConstrainGrammar, types.StructuredOutputGrammar)],
)
def test_the_interface_is_that_of_vllm(ours: Any, theirs: Any) -> None:
    assert theirs.__abstractmethods__
    for name in theirs.__abstractmethods__:
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        ), name


def test_all_kinds_of_constraints_are_known() -> None:
    assert set(KINDS) == {option.name for option in types.StructuredOutputOptions}


def test_the_plugin_is_in_place() -> None:
    from constrain_vllm import register
    from vllm.sampling_params import SamplingParams
    from vllm.v1.structured_output import StructuredOutputManager, backend_guidance

    register()
    register()
    assert backend_guidance.GuidanceBackend is ConstrainBackend
    assert SamplingParams._validate_structured_outputs.__wrapped__.__module__ == "vllm.sampling_params"
    assert not hasattr(StructuredOutputManager._create_grammar.__wrapped__, "__wrapped__")
    assert issubclass(ConstrainGrammar, types.StructuredOutputGrammar)


def test_mistakes_are_those_of_a_request() -> None:
    from types import SimpleNamespace

    from constrain_vllm import register
    from transformers import AutoTokenizer
    from vllm.config import StructuredOutputsConfig
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    from constrain.demo import model_dir

    register()
    tokenizer = AutoTokenizer.from_pretrained(model_dir())
    model = SimpleNamespace(
        is_diffusion=False,
        get_vocab_size=lambda: len(tokenizer),
        try_get_generation_config=dict,
        hf_text_config=SimpleNamespace(eos_token_id=2),
    )

    def validate(max_tokens: int = 50, **constraint: Any) -> Any:
        params = SamplingParams(max_tokens=max_tokens, structured_outputs=StructuredOutputsParams(**constraint))
        params._validate_structured_outputs(model, StructuredOutputsConfig(), tokenizer)
        params._validate_structured_outputs(model, StructuredOutputsConfig(), tokenizer)
        return params.structured_outputs._backend

    assert validate(json={"type": "integer"}) == "guidance"
    assert validate(choice=["a", "b"]) == "guidance"
    for constraint, reason in [
        ({"json": {"type": "strin"}}, "there is no type 'strin'"),
        ({"regex": "(a"}, "offset 0"),
        ({"grammar": "start: missing"}, "missing"),
        ({"structural_tag": '{"format": {"type": "mystery"}}'}, "mystery"),
        ({"regex": "a", "whitespace_pattern": " "}, "whitespace_pattern"),
        ({"regex": "[0-9]{9}", "max_tokens": 2}, "a budget of 2 tokens"),
    ]:
        with pytest.raises(VLLMValidationError, match=reason):
            validate(**constraint)


def test_thoughts_of_a_draft_are_noted() -> None:
    from types import SimpleNamespace

    from constrain_vllm import register
    from vllm.v1.structured_output import StructuredOutputManager

    from constrain.engine import compile_regex
    from constrain.integrations.serving import OutputState
    from constrain.testing import small_vocabulary

    register()
    end = 9
    reasoner = SimpleNamespace(
        is_reasoning_end=lambda ids: end in ids, is_reasoning_end_streaming=lambda ids, delta: end in delta
    )
    grammar = ConstrainGrammar(OutputState(compile_regex("[0-9]+", small_vocabulary())))
    structured = SimpleNamespace(reasoning_ended=None, grammar=grammar)
    request = SimpleNamespace(structured_output_request=structured, prompt_token_ids=[1], all_token_ids=[1, 7])
    manager = SimpleNamespace(enable_in_reasoning=False, _get_reasoner=lambda request: reasoner)
    for tokens, committed, expected in [
        ((), False, 0), ([7, end, 5, 6], False, 2), ([7, end], False, 2), ([7, 7], False, 2), ([end, 5], True, 0)
    ]:  # fmt: skip
        StructuredOutputManager._get_constraint_bounds(manager, request, tokens, committed)
        assert grammar.num_drafted_thoughts == expected, tokens
