"""Perplexity of a model on texts, and the divergence of its predictions from those of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from constrain.arguments import check_count
from constrain.errors import ArgumentError
from constrain.quantization.layerwise import LayerwiseModel, Progress, Steps, check_context
from constrain.quantization.predictions import Predictions
from constrain.quantization.texts import DEFAULT_CONTEXT, Texts, Window, listed, windows_of
from constrain.tokenizer import ExLlamaV2Tokenizer


@dataclass(frozen=True)
class Divergence:
    """How the predictions of a model differ from those of the original.

    The divergence at a token is the Kullback-Leibler divergence of the model's distribution from the original's, which
    is the sum of ``p * log(p / q)`` over the vocabulary, in nats, where ``p`` is the original's.

    Attributes:
        original: folder of the original.
        perplexity: of the original, on the same tokens.
        mean, median, p99, largest: of the divergences at all tokens; one in a hundred exceeds ``p99``.
        top1: share of the tokens at which both models have the same most likely token.
    """

    original: str
    perplexity: float
    mean: float
    median: float
    p99: float
    largest: float
    top1: float


@dataclass(frozen=True)
class ModelEvaluation:
    """How well a model predicts texts.

    Attributes:
        model: folder of the model.
        tokens: number of tokens that count.
        context, stride: of the windows, in tokens.
        perplexity: exponential of the mean of ``-log(p)``, where ``p`` is the probability of a token after those before
            it in its window.
        divergence: from the original; ``None`` without one.
    """

    model: str
    tokens: int
    context: int
    stride: int
    perplexity: float
    divergence: Divergence | None

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON."""
        return asdict(self)


def evaluate_model(
    model: str | Path,
    texts: Texts,
    *,
    against: str | Path | None = None,
    context: int | None = None,
    stride: int | None = None,
    max_tokens: int | None = None,
    progress: Progress | None = None,
) -> ModelEvaluation:
    """Compute the perplexity of a model on texts, and the divergence of its predictions from those of an original.

    Texts are read in windows that overlap, and each token counts in one of them. One layer of a model is in memory at a
    time, so that models may be larger than the memory; beside it there are the states of all windows, ``hidden_size``
    numbers for each token and model.

    Args:
        model: folder of the model.
        texts: one text or several. Names of special tokens in them are these tokens, as in prompts.
        against: folder of the model to compare with, such as the one that ``model`` was quantised from.
        context: tokens of a window; by default what the models allow, and no more than 2048.
        stride: tokens from the beginning of a window to that of the next, less than ``context``; by default half of it.
            With a smaller one, tokens have more context, and it takes longer.
        max_tokens: there are no more windows once this many tokens count.
        progress: called as ``progress(done, total)`` after each step.

    Raises:
        ArgumentError: the texts are too short, the models have different vocabularies, or another argument is invalid.
        ModelError: a folder cannot be used, a model cannot read windows of this length, or its logits are no numbers.
    """
    models = [LayerwiseModel(folder) for folder in (model, against) if folder is not None]
    context = min(DEFAULT_CONTEXT, *(each.config.max_seq_len for each in models)) if context is None else context
    stride = max(1, context // 2) if stride is None else stride
    windows = _windows(models, texts, context, stride, max_tokens)
    steps = Steps(progress, len(windows) * sum(each.count for each in models))
    predicted = [Predictions(each, windows, steps) for each in models]
    perplexity, divergence = _measure(predicted[0], None if against is None else predicted[1])
    steps.finish()
    tokens = sum(window.scored for window in windows)
    return ModelEvaluation(str(model), tokens, context, stride, perplexity, divergence)


def _windows(
    models: Sequence[LayerwiseModel], texts: Texts, context: int, stride: int, max_tokens: int | None
) -> list[Window]:
    """Return the windows of texts, which do not depend on the model."""
    if max_tokens is not None:
        check_count("max_tokens", max_tokens, 1)
    given = listed(texts)
    windows, *others = (
        windows_of(ExLlamaV2Tokenizer(each.config), given, context, stride, max_tokens) for each in models
    )
    check_context(context, *models)
    if not windows:
        raise ArgumentError("the texts are too short: they have no token after another")
    for model, found in zip(models[1:], others, strict=True):
        _check_same_vocabulary(models[0], model, _same_tokens(windows, found))
    return windows


def _same_tokens(windows: Sequence[Window], others: Sequence[Window]) -> bool:
    pairs = zip(windows, others, strict=False)
    return len(windows) == len(others) and all(torch.equal(one.ids, other.ids) for one, other in pairs)


def _check_same_vocabulary(model: LayerwiseModel, other: LayerwiseModel, same_tokens: bool) -> None:
    sizes = [each.config.vocab_size for each in (model, other)]
    if sizes[0] == sizes[1] and same_tokens:
        return
    how = f"{sizes[0]:,} and {sizes[1]:,} tokens"
    if sizes[0] == sizes[1]:
        how = "they divide the texts into different tokens"
    raise ArgumentError(
        f"{model.config.model_dir} and {other.config.model_dir} have different vocabularies ({how}), so that their "
        "predictions cannot be compared; evaluate each without the other"
    )


def _measure(model: Predictions, original: Predictions | None) -> tuple[float, Divergence | None]:
    """Compute the perplexity of a model, and its divergence from the original."""
    if original is None:
        return model.perplexity([_loss(log_q, came) for log_q, came in model.blocks()]), None
    losses: list[tuple[torch.Tensor, torch.Tensor]] = []
    divergences: list[torch.Tensor] = []
    same = 0
    for (log_q, came), (log_p, _) in zip(model.blocks(), original.blocks(), strict=True):
        losses.append((_loss(log_q, came), _loss(log_p, came)))
        divergences.append(F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1).clamp(min=0).cpu())
        same += int((log_q.argmax(dim=-1) == log_p.argmax(dim=-1)).sum())
    perplexity = model.perplexity([loss for loss, _ in losses])
    found = torch.cat(divergences).double()
    return perplexity, Divergence(
        original=str(original.folder),
        perplexity=original.perplexity([loss for _, loss in losses]),
        mean=float(found.mean()),
        median=_quantile(found, 0.5),
        p99=_quantile(found, 0.99),
        largest=float(found.max()),
        top1=same / len(found),
    )


def _loss(log_probabilities: torch.Tensor, came: torch.Tensor) -> torch.Tensor:
    return -log_probabilities.gather(-1, came.unsqueeze(-1)).squeeze(-1).cpu()


def _quantile(values: torch.Tensor, share: float) -> float:
    """Return the smallest value that at least ``share`` of all do not exceed."""
    rank = max(1, math.ceil(share * len(values)))
    return float(values.kthvalue(rank).values)
