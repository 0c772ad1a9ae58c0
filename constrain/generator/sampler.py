"""``ExLlamaV2Sampler``: sampling on the host, under the names of exllamav2.

The generators sample in batches on the device of the model (:mod:`constrain.runtime.sampler`); this is the same
arithmetic, for programs that run the model themselves and sample from its logits.
"""

from __future__ import annotations

import random as python_random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from constrain.errors import GenerationError, NoTokenLeft
from constrain.filters import Constraint, combine
from constrain.filters.masks import TokenMask, only_end, row, token_list
from constrain.generator.settings import Settings as _Settings
from constrain.generator.special_sets import dry_breakers, xtc_protected
from constrain.kernels import (
    ChosenRows,
    TokenPages,
    TopTokens,
    apply_bitmask,
    apply_dry,
    apply_guidance,
    penalise,
    sample,
)
from constrain.kernels.graphs import Uploads
from constrain.model.embeddings import as_int32
from constrain.runtime.sampler.inputs import SamplingInputs, SamplingRow
from constrain.runtime.sampler.params import SamplingParams
from constrain.tokenizer import ExLlamaV2Tokenizer

#: ``tokens (b, 1), top_tokens (b, 1, k) | meta, top_probs (b, 1, k) | meta, probs (b, 1), end_filter``
SampleResult: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool]

BLOCKED_LOGIT = -1e30
_CPU = torch.device("cpu")
_meta = torch.empty((0,), device="meta")


class ExLlamaV2Sampler:
    """Samples tokens from logits."""

    Settings: TypeAlias = _Settings

    @staticmethod
    def sample(
        logits: torch.Tensor,
        settings: Settings,
        sequence_ids: torch.Tensor,
        random: float,
        tokenizer: ExLlamaV2Tokenizer,
        prefix_token: torch.Tensor | None = None,
        return_top_tokens: int = 0,
        blocked_tokens: Sequence[int] | None = None,
        filters: Sequence[Any] | None = None,
        filter_prefer_eos: bool = False,
        sync: bool = False,
    ) -> SampleResult:
        """Sample a token for each row.

        Args:
            logits: float32 of shape (batch, 1, padded vocabulary), on the CPU; changed in place. Under classifier-free
                guidance the batch is 2 and counts as one row.
            settings: see :class:`Settings`.
            sequence_ids: int64 of shape (batch, n), the sequence so far, for the penalties.
            random: uniform random number in [0, 1) that selects the token.
            tokenizer: the tokenizer of the model.
            prefix_token: int64 of shape (batch, 1): sample only tokens whose text begins with that of this one.
            return_top_tokens: number of most likely tokens to return.
            blocked_tokens: ids that are sampled only if no other token is left.
            filters: constraints on the token, for a single row.
            filter_prefer_eos: sample the end-of-sequence token as soon as the filters allow it.
            sync: accepted for compatibility.

        Returns:
            The tokens, int64 of shape (batch, 1); the most likely tokens and their probabilities, of shape
            (batch, 1, return_top_tokens), or meta tensors; the probability of each sampled token, float32 of shape
            (batch, 1); and whether the token completes a filter, so that the sequence ends after it.

        Raises:
            DeadEnd, FilterError: raised by the filters.
            GenerationError: the arguments contradict each other, or no token has a finite logit.
        """
        rows = _guided(logits, settings)
        params = settings.params(tokenizer, rows.shape[1])
        _process(rows, params, settings, sequence_ids, tokenizer, blocked_tokens)
        constraint = _constraint(filters, tokenizer, rows)
        if constraint is not None:
            only = _apply_constraint(constraint, rows[0], tokenizer.eos_token_id if filter_prefer_eos else None)
            if only is not None and not return_top_tokens and prefix_token is None:
                return torch.tensor([[only]]), _meta, _meta, torch.ones(1, 1), only in constraint.end_tokens
        if prefix_token is not None:
            _heal(rows, prefix_token, tokenizer)
        rows[:, tokenizer.get_vocab_size() :] = -float("inf")
        tokens, probs, top = _sample(rows, settings, params, random, return_top_tokens)
        if (tokens < 0).any():
            raise NoTokenLeft("no token can be sampled: the bias and bans exclude every token, or the logits are NaN")
        end_filter = constraint is not None and int(tokens[0]) in constraint.end_tokens
        if not return_top_tokens:
            return tokens[:, None], _meta, _meta, probs[:, None], end_filter
        return tokens[:, None], top.ids[:, None], top.probabilities[:, None], probs[:, None], end_filter

    @staticmethod
    def get_dry_default_sequence_breaker_tokens(tokenizer: ExLlamaV2Tokenizer) -> set[int]:
        """Return the ids of special tokens and of tokens with punctuation or line breaks."""
        return set(dry_breakers(tokenizer))

    @staticmethod
    def get_default_xtc_mask_tokens(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
        """Return the ids of special tokens and of tokens with line breaks."""
        return xtc_protected(tokenizer)

    @staticmethod
    def get_xtc_mask_tensor(tokenizer: ExLlamaV2Tokenizer, vocab_size: int, tokens: Collection[int]) -> torch.Tensor:
        """Return a bool tensor of shape (vocab_size,) that is false for tokens that XTC leaves unchanged."""
        mask = torch.ones(vocab_size, dtype=torch.bool)
        mask[[token for token in tokens if token < vocab_size]] = False
        return mask

    @staticmethod
    def apply_dry(
        settings: Settings, tokenizer: ExLlamaV2Tokenizer, sequence_ids: torch.Tensor, logits: torch.Tensor
    ) -> None:
        """Apply the DRY penalties to logits of shape (batch, 1, V), in place, row by row."""
        settings.check()
        if settings.dry_sequence_breakers is None:
            settings.dry_sequence_breakers = set(dry_breakers(tokenizer))
        params = settings.params(tokenizer, logits.shape[2])
        rows, sequences, lengths = _with_sequences(logits[:, 0], sequence_ids)
        if params.dry_breakers is not None and len(rows):
            inputs = _inputs(params, [0.0] * len(rows))
            apply_dry(rows, sequences, lengths, inputs.dry, _chosen(params.dry_breakers, rows))


def _guided(logits: torch.Tensor, settings: _Settings) -> torch.Tensor:
    """Return logits of shape (batch, V); classifier-free guidance mixes its two rows into one."""
    if settings.cfg_scale is None:
        return logits[:, 0]
    if logits.shape[0] != 2:
        raise GenerationError(f"cfg_scale needs a batch of 2 (with and without condition), not {len(logits)}")
    rows = logits[:, 0].clone()
    apply_guidance(rows, torch.tensor([1, -1], dtype=torch.int), torch.tensor([settings.cfg_scale, 1.0]))
    return rows[:1]


def _process(
    rows: torch.Tensor,
    params: SamplingParams,
    settings: _Settings,
    sequence_ids: torch.Tensor,
    tokenizer: ExLlamaV2Tokenizer,
    blocked_tokens: Sequence[int] | None,
) -> None:
    """Apply penalties, bans, bias and DRY to logits of shape (batch, V), in place."""
    if params.has_penalties:
        given, sequences, lengths = _with_sequences(rows, sequence_ids)
        penalise(given, sequences, lengths, _inputs(params, [0.0] * len(given)).penalties)
    if blocked_tokens:
        rows[:, list(blocked_tokens)] = BLOCKED_LOGIT
    if params.bias is not None:
        rows += params.bias.values
    if params.dry_multiplier > 0:
        ExLlamaV2Sampler.apply_dry(settings, tokenizer, sequence_ids, rows.unsqueeze(1))


def _constraint(filters: Sequence[Any] | None, tokenizer: ExLlamaV2Tokenizer, rows: torch.Tensor) -> Constraint | None:
    if not filters:
        return None
    if len(rows) != 1:
        raise GenerationError(f"filters constrain a single sequence, but the batch has {len(rows)} rows")
    return combine(filters, tokenizer, rows.shape[1])


def _apply_constraint(constraint: Constraint, logits: torch.Tensor, eos: int | None) -> int | None:
    """Mask a row of logits in place; return the token if only one is left, else ``None``."""
    mask = only_end(constraint.mask(), eos)
    if constraint.bias is not None:
        logits += constraint.bias
    if mask is None:
        return None
    words = (len(logits) + 31) // 32
    apply_bitmask(logits.unsqueeze(0), torch.from_numpy(row(mask, words)).unsqueeze(0))
    tokens = token_list(mask)
    return tokens[0] if tokens is not None and len(tokens) == 1 else None


def _heal(rows: torch.Tensor, prefix_token: torch.Tensor, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Mask out tokens whose text does not begin with that of the prefix token (token healing)."""
    continuations = tokenizer.get_prefix_id_to_ids_dict()
    for target, token in zip(rows, prefix_token[:, 0].tolist(), strict=True):
        ids = continuations[token]
        kept = target[ids]
        target.fill_(-float("inf"))
        target[ids] = kept


def _sample(
    rows: torch.Tensor, settings: _Settings, params: SamplingParams, random: float, top_tokens: int
) -> tuple[torch.Tensor, torch.Tensor, TopTokens]:
    """Sample from logits of shape (batch, V); return tokens, their probabilities, and the most likely tokens."""
    count, shaped = len(rows), params.is_shaped
    mu = _mirostat_mu(settings, count)
    tensors = _inputs(params, mu).sampling(torch.zeros(count, dtype=torch.int), shaped)
    tensors = replace(tensors, uniform=torch.tensor(_row_randoms(random, count), dtype=torch.float64))
    top = TopTokens.empty(torch.full((count,), top_tokens, dtype=torch.int), top_tokens)
    protected = None if params.xtc_protected is None else _chosen(params.xtc_protected, rows)
    tokens, probs = sample(rows, tensors, protected=protected, top=top if top_tokens else None, shaped=shaped)
    if settings.mirostat and settings.mirostat_mu is not None and params.mirostat is not None:
        for i, (old, prob) in enumerate(zip(mu, probs.tolist(), strict=True)):
            settings.mirostat_mu[i] = params.mirostat.after(old, prob)
    return tokens, probs, top


def _inputs(params: SamplingParams, mu: Sequence[float]) -> SamplingInputs:
    """Return the parameters of rows as tensors; ``mu``: the Mirostat state of each."""
    inputs = SamplingInputs(len(mu), _CPU, Uploads(_CPU))
    rows = [SamplingRow(params, seed=0, mu=each) for each in mu]
    inputs.set(rows)
    inputs.send_mu(rows)
    return inputs


def _with_sequences(rows: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, TokenPages, torch.Tensor]:
    """Return the rows that have a sequence, these sequences as one page each, and their lengths."""
    count = min(len(rows), len(ids)) if ids.shape[1] else 0
    pages = torch.arange(count, dtype=torch.int)[:, None]
    lengths = torch.full((count,), ids.shape[1], dtype=torch.int)
    return rows[:count], TokenPages(as_int32(ids[:count]), pages), lengths


def _chosen(mask: TokenMask, rows: torch.Tensor) -> ChosenRows:
    """Return a mask for all rows."""
    bits = torch.from_numpy(row(mask, (rows.shape[1] + 31) // 32)).unsqueeze(0)
    return ChosenRows(bits, torch.zeros(len(rows), dtype=torch.int))


def _mirostat_mu(settings: _Settings, rows: int) -> list[float]:
    """Return the Mirostat state of each row, which is stored in the settings."""
    if not settings.mirostat:
        return [0.0] * rows
    if settings.mirostat_mu is None:
        settings.mirostat_mu = []
    settings.mirostat_mu.extend(0.0 for _ in range(rows - len(settings.mirostat_mu)))
    return [mu or 2.0 * settings.mirostat_tau for mu in settings.mirostat_mu[:rows]]


def _row_randoms(r: float, rows: int) -> list[float]:
    """Return a random number for each row: ``r`` for the first, the others from a generator seeded with it."""
    further = python_random.Random(r)
    return [r, *(further.random() for _ in range(rows - 1))]
