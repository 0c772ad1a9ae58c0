"""The logits processors for other libraries, by the conformance kit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from constrain.engine import CompiledGrammar
from constrain.integrations import llama_cpp, mlx_lm, outlines, transformers
from constrain.integrations.serving import ConstraintKind, compile_constraint
from constrain.testing import backends, small_vocabulary

#: Scores of the next tokens after some tokens, with -inf for the excluded ones.
Scores = Callable[[list[int]], Any]
#: Creates the scores of an output, given its grammar and its budget.
Create = Callable[[CompiledGrammar, "int | None"], Scores]

PROMPT = [1, 5, 7]
WIDTH = small_vocabulary().size + 32


class ProcessorOutput(backends.Output):
    """A text that a library generates: its tokens, and a processor of the scores after them."""

    def __init__(self, scores: Scores) -> None:
        self.tokens, self.scores = [*PROMPT], scores

    def allowed(self) -> backends.Tokens:
        return np.flatnonzero(np.asarray(self.scores(self.tokens)) == 0)

    def accept(self, token: int) -> bool:
        self.allowed()
        self.tokens.append(token)
        return True


class ProcessorBackend(backends.Backend):
    abilities = ("budget",)
    vocabulary = small_vocabulary()

    def __init__(self, create: Create) -> None:
        self.create = create

    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> ProcessorOutput:
        return ProcessorOutput(self.create(compile_constraint(kind, text, self.vocabulary), max_tokens))


def of_transformers(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    processor = transformers.ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(torch.tensor([tokens]), torch.zeros(1, WIDTH))[0]


def of_continuous_batching(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    pytest.importorskip("transformers.generation.continuous_batching.cb_logits_processors")
    from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState

    from constrain.integrations.continuous_batching import ContinuousBatchingConstraints

    constraints = ContinuousBatchingConstraints()
    request = RequestState("one", PROMPT, max_new_tokens=max_tokens, logit_processor_kwargs={"constraint": grammar})

    def scores(tokens: list[int]) -> torch.Tensor:
        request.generated_tokens = tokens[len(PROMPT) :]
        rows = constraints.prepare_tensor_args([FutureRequestState(request, True, {}, 1)])
        return constraints(torch.zeros(1, WIDTH), rows)[0]

    return scores


def of_llama_cpp(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    processor = llama_cpp.ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(np.array(tokens, dtype=np.intc), np.zeros(WIDTH, dtype=np.single))


def of_mlx_lm(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    processor = mlx_lm.ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(np.array(tokens), np.zeros((1, WIDTH)))[0]


def of_outlines_with_torch(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    processor = outlines.ConstraintLogitsProcessor(grammar, "torch", max_tokens)
    return lambda tokens: processor(torch.tensor([tokens]), torch.zeros(1, WIDTH))[0]


def of_outlines_with_numpy(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    processor = outlines.ConstraintLogitsProcessor(grammar, "numpy", max_tokens)
    return lambda tokens: processor(np.array([tokens]), np.zeros((1, WIDTH)))[0]


@pytest.fixture
def numpy_as_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX is not installed; of its functions, the adapter needs two, which numpy has, too."""
    core = ModuleType("mlx.core")
    vars(core).update(array=np.array, where=np.where, inf=np.inf)
    package = ModuleType("mlx")
    vars(package).update(core=core)
    monkeypatch.setitem(sys.modules, "mlx", package)
    monkeypatch.setitem(sys.modules, "mlx.core", core)


@pytest.mark.usefixtures("numpy_as_mlx")
@pytest.mark.parametrize("check", [check for check, ability in backends.CHECKS if ability in ("", "budget")])
@pytest.mark.parametrize(
    "create",
    [
        of_transformers,
        of_continuous_batching,
        of_llama_cpp,
        of_mlx_lm,
        of_outlines_with_torch,
        of_outlines_with_numpy,
    ],
)
def test_logits_processors_conform(create: Create, check: backends.Check) -> None:
    check(ProcessorBackend(create))
