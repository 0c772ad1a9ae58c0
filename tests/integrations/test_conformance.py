"""The logits processors for other libraries, by the conformance kit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from constrain.engine import CompiledGrammar
from constrain.integrations.serving import ConstraintKind, compile_constraint
from constrain.testing import backends, small_vocabulary

#: Scores of the next tokens after some tokens, with -inf for the excluded ones.
Scores = Callable[[list[int]], Any]
PROMPT = [1, 5, 7]
WIDTH = 6144 + 32


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

    def __init__(self, create: Callable[[CompiledGrammar, int | None], Scores]) -> None:
        self.create = create

    def start(self, kind: ConstraintKind, text: str, max_tokens: int | None = None) -> ProcessorOutput:
        return ProcessorOutput(self.create(compile_constraint(kind, text, self.vocabulary), max_tokens))


def transformers(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    from constrain.integrations.transformers import ConstraintLogitsProcessor

    processor = ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(torch.tensor([tokens]), torch.zeros(1, WIDTH))[0]


def continuous_batching(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState

    from constrain.integrations.continuous_batching import ContinuousBatchingConstraints

    constraints = ContinuousBatchingConstraints()
    request = RequestState("one", PROMPT, max_new_tokens=max_tokens, logit_processor_kwargs={"constraint": grammar})

    def scores(tokens: list[int]) -> torch.Tensor:
        request.generated_tokens = tokens[len(PROMPT) :]
        rows = constraints.prepare_tensor_args([FutureRequestState(request, True, {}, 1)])
        return constraints(torch.zeros(1, WIDTH), rows)[0]

    return scores


def llama_cpp(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    from constrain.integrations.llama_cpp import ConstraintLogitsProcessor

    processor = ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(np.array(tokens, dtype=np.intc), np.zeros(WIDTH, dtype=np.single))


def mlx_lm(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
    from constrain.integrations.mlx_lm import ConstraintLogitsProcessor

    processor = ConstraintLogitsProcessor(grammar, max_tokens)
    return lambda tokens: processor(np.array(tokens), np.zeros((1, WIDTH)))[0]


@pytest.fixture
def numpy_as_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX is there on Apple's machines only; of its functions, the adapter needs two, which numpy has, too."""
    core = ModuleType("mlx.core")
    vars(core).update(array=np.array, where=np.where, inf=np.inf)
    package = ModuleType("mlx")
    vars(package).update(core=core)
    monkeypatch.setitem(sys.modules, "mlx", package)
    monkeypatch.setitem(sys.modules, "mlx.core", core)


CHECKS = [check for check, ability in backends.CHECKS if ability in ("", "budget")]


@pytest.mark.usefixtures("numpy_as_mlx")
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("create", [transformers, continuous_batching, llama_cpp, mlx_lm])
def test_logits_processors_conform(create: Callable[[CompiledGrammar, int | None], Scores], check: Any) -> None:
    check(ProcessorBackend(create))


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("check", CHECKS)
def test_outlines_conforms(library: str, check: Any) -> None:
    pytest.importorskip("outlines", reason="Outlines is not installed")
    processor_class = importlib.import_module("constrain.integrations.outlines").ConstraintLogitsProcessor
    zeros, tensor = (torch.zeros, torch.tensor) if library == "torch" else (np.zeros, np.array)

    def create(grammar: CompiledGrammar, max_tokens: int | None) -> Scores:
        processor = processor_class(grammar, library, max_tokens)
        return lambda tokens: processor(tensor([tokens]), zeros((1, WIDTH)))[0]

    check(ProcessorBackend(create))
