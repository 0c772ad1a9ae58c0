"""Sampling parameters of the rows of a pass, as tensors on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from constrain.filters.masks import MAX_LISTED_TOKENS, TokenMask
from constrain.kernels import DryTensors, PenaltyParameters, SamplingTensors, philox_uniform
from constrain.kernels.graphs import Uploads
from constrain.runtime.sampler.params import GREEDY, SamplingParams, TokenBias

_OFF = float("inf")
# The first fields of the parameters are floats, and those after them integers.
_NUM_FLOATS = SamplingParams._fields.index("top_k")
_NUM_NUMBERS = SamplingParams._fields.index("dry_breakers")
_FLOATS = SamplingParams._fields[:_NUM_FLOATS]
_INTEGERS = SamplingParams._fields[_NUM_FLOATS:_NUM_NUMBERS]
_SHAPING = _FLOATS[_FLOATS.index("smoothing_factor") : _FLOATS.index("dry_multiplier")]
# In the order of PenaltyParameters and DryTensors.
_PENALTIES = (
    "repetition_penalty",
    "repetition_range",
    "repetition_decay",
    "frequency_penalty",
    "presence_penalty",
    "frequency_start",
)
_DRY = "dry_multiplier", "dry_base", "dry_allowed_length", "dry_max_ngram", "dry_range"


class SamplingRow(NamedTuple):
    """One row to sample.

    Attributes:
        params: sampling parameters.
        seed: key of the random numbers.
        mask: the allowed tokens, ``None`` for all.
        partner: unconditional row, for guidance; -1: none.
        pair: for an unconditional row, the row whose token it gets; -1: its own.
        top_tokens: number of most likely tokens to report.
        raw, final: whether to report logits as the model returns them, and as they are sampled from.
        logprobs: number of most likely tokens by the model alone to report with their log probabilities, and that of
            the sampled token; -1: none.
        bias: bias that filters add to the logits of this token only.
        measured: whether to report how the mask divides the probability.
        watched: tokens whose logits are reported then even where many are allowed.
        at_once: whether that is measured in the pass, and not later.
        uniform: random number in [0, 1) in place of that of the seed.
        mu: state of Mirostat; ``None``: that of the parameters.
    """

    params: SamplingParams
    seed: int
    mask: TokenMask | None = None
    partner: int = -1
    pair: int = -1
    top_tokens: int = 0
    raw: bool = False
    final: bool = False
    logprobs: int = -1
    bias: TokenBias | None = None
    measured: bool = False
    watched: TokenMask | None = None
    at_once: bool = False
    uniform: float | None = None
    mu: float | None = None


class SamplingInputs:
    """Sampling inputs of the rows of a pass, on the device.

    Attributes:
        chosen: by name, the pool row that each row uses; int32 ``[rows]``, -1 for none.
        allowed: the tokens that the masks allow, if they are few, followed by arbitrary others.
    """

    def __init__(self, rows: int, device: torch.device, uploads: Uploads) -> None:
        self._rows, self._uploads = rows, uploads
        self.chosen = {
            name: torch.full((rows,), -1, dtype=torch.int, device=device)
            for name in ("masks", "biases", "partners", "pairs", "breakers", "protected", "watched")
        }
        self.allowed = torch.zeros(MAX_LISTED_TOKENS, dtype=torch.int, device=device)
        self._seeds = torch.zeros(rows, dtype=torch.int64, device=device)
        self._uniform = torch.full((rows,), -1.0, dtype=torch.float64, device=device)
        # The weight of guidance comes last.
        self._floats = torch.zeros(_NUM_FLOATS + 1, rows, device=device)
        # Apart from the others, as it changes with every token.
        self._mu = torch.full((rows,), _OFF, device=device)
        self._integers = torch.zeros(len(_INTEGERS) + 1, rows, dtype=torch.int, device=device)
        names = (*_FLOATS, *_INTEGERS)
        self._tensors = dict(zip(names, (*self._floats[:-1], *self._integers[:-1]), strict=True))
        self._settings: list[Any] = []
        self._sent: dict[torch.Tensor, list[Any]] = {}

    @property
    def penalties(self) -> PenaltyParameters:
        """Parameters of the repetition penalties."""
        return PenaltyParameters(*(self._tensors[name] for name in _PENALTIES))

    @property
    def dry(self) -> DryTensors:
        """Parameters of DRY."""
        return DryTensors(*(self._tensors[name] for name in _DRY))

    @property
    def guidance(self) -> torch.Tensor:
        """Weights of classifier-free guidance, float32 ``[rows]``."""
        return self._floats[-1]

    @property
    def top_counts(self) -> torch.Tensor:
        """Number of most likely tokens to report, int32 ``[rows]``."""
        return self._integers[-1]

    def sampling(self, lengths: torch.Tensor, shaped: bool, uniform: bool = False) -> SamplingTensors:
        """Return the parameters of the rows.

        Args:
            lengths: int32 ``[rows]``, of their sequences.
            shaped: whether a row has settings for which the candidates are sorted.
            uniform: whether random numbers are given for some rows.
        """
        t = self._tensors
        plain = (t["temperature"], t["top_k"], t["top_p"], t["min_p"], self._seeds, lengths)
        numbers = None
        if uniform:
            numbers = torch.where(self._uniform < 0, philox_uniform(self._seeds, lengths), self._uniform)
        if not shaped:
            return SamplingTensors(*plain, numbers)
        return SamplingTensors(
            *plain,
            numbers,
            **{name: t[name] for name in _SHAPING},
            mirostat_mu=self._mu,
            temperature_last=t["temperature_last"],
        )

    def set(self, rows: Sequence[SamplingRow]) -> None:
        """Upload the parameters that changed."""
        settings = [(row.params, row.seed, row.top_tokens) for row in rows]
        if settings == self._settings:
            return
        self._settings = settings
        idle = [(GREEDY, 0, 0)] * (self._rows - len(rows))
        padded = [*settings, *idle]
        self._update(self._seeds, [seed for _, seed, _ in padded])
        floats = [_floats(params) for params, _, _ in padded]
        integers = [(*params[_NUM_FLOATS:_NUM_NUMBERS], top) for params, _, top in padded]
        self._update(self._floats, [*zip(*floats, strict=True)])
        self._update(self._integers, [*zip(*integers, strict=True)])

    def send_mu(self, rows: Sequence[SamplingRow]) -> None:
        """Upload the Mirostat state of each row, if it changed."""
        self._update(self._mu, [*map(_mu, rows), *[_OFF] * (self._rows - len(rows))])

    def choose(self, name: str, rows: Sequence[int]) -> None:
        """Upload the pool row that each row uses."""
        values = [*rows, *([-1] * (self._rows - len(rows)) if name != "pairs" else range(len(rows), self._rows))]
        self._update(self.chosen[name], values)

    def send_allowed(self, tokens: Sequence[int]) -> None:
        """Upload the allowed tokens."""
        self._uploads.send(self.allowed[: len(tokens)], tokens)

    def send_uniform(self, numbers: Sequence[float]) -> None:
        """Upload the random numbers that are given; those below 0 are not."""
        self._uploads.send(self._uniform[: len(numbers)], numbers)

    def _update(self, target: torch.Tensor, values: list[Any]) -> None:
        if self._sent.get(target) != values:
            self._sent[target] = values
            self._uploads.send(target, values)


def _floats(params: SamplingParams) -> tuple[Any, ...]:
    return (*params[:_NUM_FLOATS], 1.0 if params.guidance is None else params.guidance)


def _mu(row: SamplingRow) -> float:
    mirostat = row.params.mirostat
    if mirostat is None:
        return _OFF
    return mirostat.mu if row.mu is None else row.mu
