"""``ExLlamaV2Sampler.Settings``: the sampling parameters under the names of exllamav2."""

from __future__ import annotations

import copy
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from constrain.arguments import check_count, check_number, check_type, refused, warn_of_misspelt
from constrain.errors import ArgumentError, GenerationError
from constrain.filters.masks import RowMask, mask_of
from constrain.generator.special_sets import dry_breakers, xtc_protected
from constrain.runtime.sampler.params import Mirostat, SamplingParams, TokenBias
from constrain.tokenizer import ExLlamaV2Tokenizer

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

_NUMBERS = {
    (-math.inf, math.inf): (
        "token_frequency_penalty token_presence_penalty temp_exponent skew mirostat_tau mirostat_eta"
    ),
    (0, math.inf): (
        "token_repetition_penalty temperature smoothing_factor min_temp max_temp top_p top_a min_p tfs typical "
        "dry_base dry_multiplier"
    ),
    (0, 1): "xtc_probability xtc_threshold",
}
"""Fields that are finite numbers, by their minimum and maximum."""

_COUNTS = {
    "token_repetition_range": -1,
    "token_repetition_decay": 0,
    "top_k": None,
    "dry_allowed_length": 0,
    "dry_range": 0,
    "dry_max_ngram": 0,
}
"""Integer fields, with their minimum (``None``: no minimum)."""

#: Maximum of integer fields: kernels take int32.
_MOST = 2**31 - 1


@dataclass
class Settings:
    """Settings of :class:`ExLlamaV2Sampler`, re-read at every step; stages run in the order of the field groups.

    Attributes:
        token_repetition_penalty: penalty factor for tokens that occurred already (1: off).
        token_repetition_range: number of last tokens that are penalised in full (-1: all).
        token_repetition_decay: number of tokens before those, over which the penalties fade to zero.
        token_frequency_penalty: subtracted from a token's logit for each of its occurrences.
        token_presence_penalty: subtracted once from the logit of a token that occurred.
        temperature: divides the logits; below 0.01, sampling is greedy.
        smoothing_factor: strength of quadratic sampling (0: off).
        min_temp, max_temp, temp_exponent: dynamic temperature by entropy, where ``max_temp > min_temp``.
        top_k: keep the k most likely tokens (0: off).
        top_p: keep the most likely tokens that together reach this probability (0, or 1 and above: off).
        top_a: keep tokens at or above ``top_a * p_max ** 2`` (0: off).
        min_p: keep tokens at or above ``min_p * p_max`` (0, or 1 and above: off).
        tfs: tail-free sampling (0, or 1 and above: off).
        typical: locally typical sampling, the probability to keep (0, or 1 and above: off).
        skew: shifts sampling to less likely tokens if positive, to more likely ones if negative (0: off).
        temperature_last: apply the temperature after the truncations above.
        mirostat, mirostat_tau, mirostat_eta: keep the surprise of tokens near ``tau`` bits, adapting at rate ``eta``.
        mirostat_mu: Mirostat state, a number for each row.
        token_bias: float32 of shape (padded vocabulary,), added to the logits.
        cfg_scale: classifier-free guidance: weight of the first row of two against the second.
        post_sampling_hooks: called with an :class:`ExLlamaV2PostSamplingResult` after each sampled token.
        dry_allowed_length: length of repetition that DRY allows.
        dry_base: growth of the DRY penalty for each further token.
        dry_multiplier: strength of DRY (0: off).
        dry_sequence_breakers: ids that no repetition extends across (None: punctuation and special tokens).
        dry_range: number of last tokens that DRY searches (0: all); else more than ``dry_max_ngram``.
        dry_max_ngram: longest repetition that is counted.
        ngram_trie, ngram_index, ngram_history: accepted for compatibility; DRY keeps no state here.
        xtc_probability: share of its probability that XTC removes from each likely token except the least likely one.
        xtc_threshold: minimum probability of a likely token, for XTC.
        xtc_ignore_tokens: ids that XTC leaves unchanged (None: line breaks and special tokens).
    """

    token_repetition_penalty: float = 1.025
    token_repetition_range: int = -1
    token_repetition_decay: int = 0
    token_frequency_penalty: float = 0.0
    token_presence_penalty: float = 0.0
    temperature: float = 0.8
    smoothing_factor: float = 0.0
    min_temp: float = 0
    max_temp: float = 0.0
    temp_exponent: float = 1.0
    top_k: int = 50
    top_p: float = 0.8
    top_a: float = 0.0
    min_p: float = 0
    tfs: float = 0
    typical: float = 0
    skew: float = 0
    temperature_last: bool = False
    mirostat: bool = False
    mirostat_tau: float = 1.5
    mirostat_eta: float = 0.1
    mirostat_mu: list[float] | None = None
    token_bias: torch.Tensor | None = None
    cfg_scale: float | None = None
    post_sampling_hooks: list[Callable[..., None]] = field(default_factory=list)
    dry_allowed_length: int = 2
    dry_base: float = 1.75
    dry_multiplier: float = 0.0
    dry_sequence_breakers: set[int] | None = None
    dry_range: int = 0
    dry_max_ngram: int = 20
    ngram_trie: Any = None
    ngram_index: int = 0
    ngram_history: deque[int] = field(default_factory=deque)
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_ignore_tokens: frozenset[int] | None = None

    @staticmethod
    def greedy(**kwargs: Any) -> Settings:
        """Return settings for greedy sampling; ``kwargs`` set further fields."""
        return Settings(**{"temperature": 1.0, "token_repetition_penalty": 1.0, "top_p": 0.0, "top_k": 1, **kwargs})

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, and invalidate the cached sampling parameters; warn of names that are probably mistakes."""
        if name not in self.__dataclass_fields__:  # which has those of subclasses
            _warn_of(name)
        self.__dict__[name] = value
        self.__dict__.pop("_params", None)

    def params(self, tokenizer: ExLlamaV2Tokenizer, width: int) -> SamplingParams:
        """Return the sampling parameters of these settings; cached until a field changes.

        Args:
            tokenizer: the tokenizer of the model, for the default token sets of DRY and XTC.
            width: number of logits.

        Raises:
            ArgumentError, GenerationError: a field is invalid, as for :meth:`check`, or the shape of ``token_bias``
                differs from that of the logits.
        """
        bias = self.token_bias
        # Of a tensor that counts its changes; the check below refuses everything else than a tensor.
        version = bias._version if bias is not None and not getattr(bias, "is_inference", lambda: True)() else None
        key = tokenizer, width, version
        made = self.__dict__.get("_params")
        if made is None or made[0] != key:
            self.check()
            made = self.__dict__["_params"] = key, self._make_params(tokenizer, width)
        params: SamplingParams = made[1]
        return params

    def _make_params(self, tokenizer: ExLlamaV2Tokenizer, width: int) -> SamplingParams:
        if self.token_bias is not None and self.token_bias.shape != (width,):
            raise GenerationError(f"token_bias must have shape ({width},), not {tuple(self.token_bias.shape)}")
        mu = self.mirostat_mu[0] if self.mirostat_mu else 0.0
        names = set(SamplingParams._fields) & set(vars(self)) - {"mirostat"}
        breakers = self.dry_sequence_breakers
        protected = self.xtc_ignore_tokens
        return SamplingParams(
            **{name: getattr(self, name) for name in names},
            repetition_penalty=self.token_repetition_penalty,
            frequency_penalty=self.token_frequency_penalty,
            presence_penalty=self.token_presence_penalty,
            repetition_range=self.token_repetition_range,
            repetition_decay=self.token_repetition_decay,
            dry_breakers=_mask(dry_breakers(tokenizer) if breakers is None else breakers, width)
            if self.dry_multiplier > 0
            else None,
            xtc_protected=_mask(xtc_protected(tokenizer) if protected is None else protected, width)
            if self.xtc_probability > 0
            else None,
            bias=None if self.token_bias is None else TokenBias(self.token_bias.clone()),
            guidance=self.cfg_scale,
            mirostat=Mirostat(self.mirostat_tau, self.mirostat_eta, mu or 2.0 * self.mirostat_tau)
            if self.mirostat
            else None,
        )

    def clone(self) -> Self:
        """Return a shallow copy, which shares hooks, bias and state with this object."""
        return copy.copy(self)

    def greedy_clone(self) -> Settings:
        """Return greedy settings with the same penalties, for a draft model."""
        kept = ("token_repetition_", "token_frequency_", "token_presence_", "dry_", "xtc_")
        fields = {name: value for name, value in vars(self).items() if name.startswith(kept)}
        return Settings(top_k=1, top_p=0, **fields)

    def disallow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: Sequence[int]) -> None:
        """Ban tokens by a bias of negative infinity.

        Raises:
            ArgumentError: a token is not an id.
        """
        bias = self._bias(tokenizer, 0.0)
        bias[_token_ids(tokenizer, tokens, len(bias))] = -float("inf")

    def allow_tokens(self, tokenizer: ExLlamaV2Tokenizer, tokens: Sequence[int | str]) -> None:
        """Allow tokens, given by id or text: without a bias only these, else these in addition.

        Raises:
            ArgumentError: a token is neither an id nor the text of one token.
        """
        bias = self._bias(tokenizer, -float("inf"))
        bias[_token_ids(tokenizer, tokens, len(bias))] = 0.0

    def check(self) -> None:
        """Validate all fields, as every generator does when a sequence begins.

        Raises:
            ArgumentError: a field is of the wrong type or out of range.
            GenerationError: fields contradict each other.
        """
        for (least, most), names in _NUMBERS.items():
            for name in names.split():
                check_number(name, getattr(self, name), least, most)
        for name, at_least in _COUNTS.items():
            check_count(name, getattr(self, name), at_least, _MOST)
        if self.cfg_scale is not None:
            check_number("cfg_scale", self.cfg_scale)
        if self.token_bias is not None:
            import torch

            check_type("token_bias", self.token_bias, torch.Tensor, "a tensor")
        hooks = self.post_sampling_hooks
        if not isinstance(hooks, (list, tuple)) or not all(map(callable, hooks)):
            raise refused("post_sampling_hooks", hooks, "a list of functions")
        if self.dry_multiplier > 0 and 0 < self.dry_range <= self.dry_max_ngram:
            raise GenerationError(
                f"dry_range={self.dry_range} must be 0 or more than dry_max_ngram={self.dry_max_ngram}"
            )

    def _bias(self, tokenizer: ExLlamaV2Tokenizer, start: float) -> torch.Tensor:
        if self.token_bias is None:
            import torch

            size = tokenizer.config.vocab_size or tokenizer.get_vocab_size()
            self.token_bias = torch.full(((size + 31) // 32 * 32,), start)
        return self.token_bias


_FIELDS = frozenset(each.name for each in fields(Settings))
#: Fields of old versions of exllamav2, which are arguments of the generators now.
_MOVED = frozenset({"filters", "filter_prefer_eos"})


def _warn_of(name: str) -> None:
    """Warn if an attribute, which has no effect, was probably meant to have one."""
    if name in _MOVED:
        warnings.warn(f"settings have no {name!r}, which is ignored: give it to the generator", stacklevel=3)
    else:
        warn_of_misspelt([name], _FIELDS, stacklevel=4)


def _mask(tokens: Iterable[int], width: int) -> RowMask:
    return mask_of([token for token in tokens if 0 <= token < width], width)


def check_settings(settings: Settings) -> None:
    """Check that ``settings`` is a :class:`Settings` with valid fields; errors as for :meth:`Settings.check`."""
    check_type("gen_settings", settings, Settings, "ExLlamaV2Sampler.Settings")
    settings.check()


def _token_ids(tokenizer: ExLlamaV2Tokenizer, tokens: Sequence[int | str], width: int) -> list[int]:
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise refused("tokens", tokens, "a list of tokens")
    return [_token_id(tokenizer, token, width) for token in tokens]


def _token_id(tokenizer: ExLlamaV2Tokenizer, token: int | str, width: int) -> int:
    token_id = tokenizer.single_id(token) if isinstance(token, str) else token
    if not isinstance(token_id, int) or not 0 <= token_id < width:
        raise ArgumentError(f"{token!r} is neither the id nor the text of a single token")
    return token_id
