"""Sampling: logits in, a token out. This file orders the steps; what each does is in ``samplers/``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from constrain.errors import GenerationError, NoTokenLeft
from constrain.filters.stack import FilterStack
from constrain.generator.samplers import truncation
from constrain.generator.samplers.distribution import Candidates, candidates
from constrain.generator.samplers.draw import draw, row_randoms, skewed
from constrain.generator.samplers.dry import apply_dry
from constrain.generator.samplers.guidance import guide
from constrain.generator.samplers.penalties import penalise
from constrain.generator.samplers.temperature import dynamic_temperature, reheat
from constrain.generator.samplers.xtc import exclude_top_choices
from constrain.generator.settings import Settings as _Settings
from constrain.kernels import GREEDY_TEMPERATURE

if TYPE_CHECKING:
    from constrain.tokenizer import ExLlamaV2Tokenizer

#: ``tokens (b, 1), top_tokens (b, 1, k) | meta, top_probs (b, 1, k) | meta, probs (b, 1), end_filter``
SampleResult: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool]

BLOCKED_LOGIT = -1e30
_DRY_BREAKERS = frozenset('.,!?<>[](){}\n\t"')
_TruncationStep: TypeAlias = Callable[[Candidates, float], Candidates]

_meta = torch.empty((0,), device="meta")
_dry_breakers: WeakKeyDictionary[ExLlamaV2Tokenizer, set[int]] = WeakKeyDictionary()
_xtc_protected: WeakKeyDictionary[ExLlamaV2Tokenizer, frozenset[int]] = WeakKeyDictionary()


class ExLlamaV2Sampler:
    """Draws tokens from logits."""

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
        filters: Sequence[Any] | FilterStack | None = None,
        filter_prefer_eos: bool = False,
        sync: bool = False,
    ) -> SampleResult:
        """Draw a token for each row.

        Args:
            logits: float32 of shape (batch, 1, padded vocabulary), on the CPU; changed in place. Under classifier-free
                guidance the batch is 2 and counts as one row.
            settings: see :class:`Settings`.
            sequence_ids: int64 of shape (batch, n), the text so far, for the penalties.
            random: a number in [0, 1) that decides the draw.
            tokenizer: the tokenizer of the model.
            prefix_token: int64 of shape (batch, 1): only tokens whose text begins with that of this one.
            return_top_tokens: number of most likely tokens to return.
            blocked_tokens: ids that are not to be drawn unless nothing else is left.
            filters: constraints on the token, for a single row.
            filter_prefer_eos: draw the end of the sequence as soon as the filters allow it.
            sync: accepted for compatibility.

        Returns:
            The tokens, int64 of shape (batch, 1); the most likely tokens and their probabilities, of shape
            (batch, 1, return_top_tokens), or meta tensors; the probability of each token drawn, float32 of shape
            (batch, 1); and whether the token completes a filter, so that the sequence ends after it.

        Raises:
            DeadEnd, FilterError: of the filters.
            GenerationError: the arguments do not fit together, or no token has a finite logit.
        """
        if settings.cfg_scale is not None:
            if logits.shape[0] != 2:
                raise GenerationError(f"cfg_scale needs a batch of 2 (with and without condition), not {len(logits)}")
            logits = guide(logits, settings.cfg_scale)
        rows = logits[:, 0]
        _adjust(rows, settings, sequence_ids, tokenizer, blocked_tokens)

        stack = _as_stack(filters, tokenizer, rows)
        if stack is not None:
            only = stack.apply(rows[0], filter_prefer_eos)
            if only is not None and not return_top_tokens and prefix_token is None:
                return torch.tensor([[only]]), _meta, _meta, torch.ones(1, 1), stack.ends(only)
        if prefix_token is not None:
            _heal(rows, prefix_token, tokenizer)
        rows[:, tokenizer.get_vocab_size() :] = -float("inf")

        greedy = settings.temperature < GREEDY_TEMPERATURE and not settings.temperature_last
        if (greedy or settings.top_k == 1) and not return_top_tokens and not settings.mirostat:
            tokens, probs = _most_likely(rows)
            return tokens, _meta, _meta, probs, stack is not None and stack.ends(int(tokens[0]))

        drawn = [
            _sample_row(row, i, r, settings, tokenizer, return_top_tokens)
            for i, (row, r) in enumerate(zip(rows, row_randoms(random, len(rows)), strict=True))
        ]
        tokens = torch.tensor([[token] for token, _, _ in drawn])
        probs = torch.tensor([[prob] for _, prob, _ in drawn])
        end_filter = stack is not None and stack.ends(drawn[0][0])
        if not return_top_tokens:
            return tokens, _meta, _meta, probs, end_filter
        top_tokens = torch.stack([top.ids for _, _, top in drawn]).unsqueeze(1)
        top_probs = torch.stack([top.probs for _, _, top in drawn]).unsqueeze(1)
        return tokens, top_tokens, top_probs, probs, end_filter

    @staticmethod
    def get_dry_default_sequence_breaker_tokens(tokenizer: ExLlamaV2Tokenizer) -> set[int]:
        """Return the ids of special tokens and of tokens with punctuation or line breaks."""
        if tokenizer not in _dry_breakers:
            _dry_breakers[tokenizer] = set(_special_or_with(tokenizer, _DRY_BREAKERS))
        return _dry_breakers[tokenizer]

    @staticmethod
    def get_default_xtc_mask_tokens(tokenizer: ExLlamaV2Tokenizer) -> frozenset[int]:
        """Return the ids of special tokens and of tokens with line breaks."""
        if tokenizer not in _xtc_protected:
            _xtc_protected[tokenizer] = frozenset(_special_or_with(tokenizer, frozenset("\n")))
        return _xtc_protected[tokenizer]

    @staticmethod
    def get_xtc_mask_tensor(tokenizer: ExLlamaV2Tokenizer, vocab_size: int, tokens: Collection[int]) -> torch.Tensor:
        """Return a bool tensor of shape (vocab_size,) that is false for tokens that XTC leaves alone."""
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
            settings.dry_sequence_breakers = ExLlamaV2Sampler.get_dry_default_sequence_breaker_tokens(tokenizer)
        for row, ids in zip(logits[:, 0], sequence_ids, strict=False):
            apply_dry(
                row,
                ids,
                settings.dry_sequence_breakers,
                settings.dry_range,
                settings.dry_allowed_length,
                settings.dry_max_ngram,
                settings.dry_multiplier,
                settings.dry_base,
            )


def _adjust(
    rows: torch.Tensor,
    settings: _Settings,
    sequence_ids: torch.Tensor,
    tokenizer: ExLlamaV2Tokenizer,
    blocked_tokens: Sequence[int] | None,
) -> None:
    """Apply penalties, bans, bias and DRY to logits of shape (batch, V), in place."""
    s = settings
    if s.token_repetition_penalty != 1.0 or s.token_frequency_penalty or s.token_presence_penalty:
        penalise(
            rows,
            sequence_ids[: len(rows)],
            s.token_repetition_penalty,
            s.token_repetition_range,
            s.token_repetition_decay,
            s.token_frequency_penalty,
            s.token_presence_penalty,
        )
    if blocked_tokens:
        rows[:, list(blocked_tokens)] = BLOCKED_LOGIT
    if s.token_bias is not None:
        if s.token_bias.shape != rows.shape[1:]:
            raise GenerationError(f"token_bias must have shape ({rows.shape[1]},), not {tuple(s.token_bias.shape)}")
        rows += s.token_bias
    if s.dry_multiplier > 0:
        ExLlamaV2Sampler.apply_dry(s, tokenizer, sequence_ids, rows.unsqueeze(1))


def _as_stack(
    filters: Sequence[Any] | FilterStack | None, tokenizer: ExLlamaV2Tokenizer, rows: torch.Tensor
) -> FilterStack | None:
    if not filters:
        return None
    if len(rows) != 1:
        raise GenerationError(f"filters constrain a single sequence, but the batch has {len(rows)} rows")
    return filters if isinstance(filters, FilterStack) else FilterStack(filters, tokenizer, rows.shape[1])


def _heal(rows: torch.Tensor, prefix_token: torch.Tensor, tokenizer: ExLlamaV2Tokenizer) -> None:
    """Exclude tokens whose text does not begin with that of the token to be generated anew."""
    continuations = tokenizer.get_prefix_id_to_ids_dict()
    for row, token in zip(rows, prefix_token[:, 0].tolist(), strict=True):
        ids = continuations[token]
        kept = row[ids]
        row.fill_(-float("inf"))
        row[ids] = kept


def _most_likely(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, tokens = rows.max(dim=1, keepdim=True)
    _check_best(float(values.min()))
    return tokens, torch.ones_like(values)


def _check_best(logit: float) -> None:
    if not logit > -float("inf"):  # NaN compares false
        raise NoTokenLeft("no token can be drawn: the bias and bans exclude every token, or the logits are NaN")


def _sample_row(
    logits: torch.Tensor, row: int, r: float, s: _Settings, tokenizer: ExLlamaV2Tokenizer, top: int
) -> tuple[int, float, Candidates]:
    """Draw from a row of logits of shape (V,): the token, its probability, and the ``top`` most likely candidates."""
    _check_best(float(logits.max()))
    temperature, top_k = (1.0 if s.temperature_last else s.temperature), s.top_k
    if temperature < GREEDY_TEMPERATURE:
        temperature, top_k = 1.0, 1
    c = _truncate(candidates(logits, temperature, s.smoothing_factor, top_k), s)
    mu = _mirostat_mu(s, row) if s.mirostat else 0.0
    if s.mirostat and len(c.ids) > 1:
        c = truncation.mirostat(c, mu)
    c = _reheat(c, s)
    if s.xtc_probability > 0:
        protected = s.xtc_ignore_tokens
        if protected is None:
            protected = ExLlamaV2Sampler.get_default_xtc_mask_tokens(tokenizer)
        mask = ExLlamaV2Sampler.get_xtc_mask_tensor(tokenizer, logits.shape[0], protected)
        c = exclude_top_choices(c, s.xtc_probability, s.xtc_threshold, ~mask).descending()
    index = draw(c, skewed(r, s.skew) if s.skew else r)
    token, prob = int(c.ids[index]), float(c.probs[index])
    if s.mirostat and s.mirostat_mu is not None:
        s.mirostat_mu[row] = mu + s.mirostat_eta * (s.mirostat_tau + float(c.probs[index].log2()))
    return token, prob, _padded(c, top) if top else c


def _truncate(c: Candidates, s: _Settings) -> Candidates:
    steps: tuple[tuple[_TruncationStep, float, bool], ...] = (
        (truncation.top_p, s.top_p, 0 < s.top_p < 1),
        (truncation.top_a, s.top_a, s.top_a > 0),
        (truncation.min_p, s.min_p, 0 < s.min_p < 1),
        (truncation.tail_free, s.tfs, 0 < s.tfs < 1),
        (truncation.typical, s.typical, 0 < s.typical < 1),
    )
    for step, value, wanted in steps:
        if wanted and len(c.ids) > 1:
            c = step(c, value)
    return c


def _reheat(c: Candidates, s: _Settings) -> Candidates:
    dynamic = s.max_temp > s.min_temp
    if len(c.ids) == 1 or not (dynamic or (s.temperature_last and s.temperature != 1.0)):
        return c
    temperature = dynamic_temperature(c, s.min_temp, s.max_temp, s.temp_exponent) if dynamic else s.temperature
    return reheat(c, temperature) if temperature >= GREEDY_TEMPERATURE else c.first(1)


def _mirostat_mu(s: _Settings, row: int) -> float:
    if s.mirostat_mu is None:
        s.mirostat_mu = []
    s.mirostat_mu.extend(0.0 for _ in range(row + 1 - len(s.mirostat_mu)))
    return s.mirostat_mu[row] or 2.0 * s.mirostat_tau


def _padded(c: Candidates, count: int) -> Candidates:
    """Return the first ``count`` candidates; where there are fewer, filled up with the smallest other ids."""
    missing = count - len(c.ids)
    if missing <= 0:
        return Candidates(c.probs[:count], c.ids[:count])
    present = set(c.ids.tolist())
    others = [i for i in range(count + len(present)) if i not in present][:missing]
    return Candidates(
        torch.cat([c.probs, torch.zeros(missing)]), torch.cat([c.ids, torch.tensor(others, dtype=torch.long)])
    )


def _special_or_with(tokenizer: ExLlamaV2Tokenizer, chars: frozenset[str]) -> set[int]:
    pieces = tokenizer.get_id_to_piece_list(True)
    found = {i for i, piece in enumerate(pieces) if not chars.isdisjoint(piece)}
    return found | set(tokenizer.extended_id_to_piece)
