"""Token sampling for a decode batch: the head of the model, logit processing, token masks, and the sampling kernels.

Tokens are sampled by :func:`constrain.kernels.sample`: ``sample_torch`` on a CPU, ``csrc/cuda/sampling/sampling.cu`` on
a GPU, where all steps are one CUDA graph for each combination of settings in a batch. The token of a row depends only
on its own states, parameters, mask and history: its random number is derived from its seed and the length of its
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from constrain.filters.masks import MAX_LISTED_TOKENS, token_list
from constrain.kernels import (
    ChosenRows,
    PenaltyScratch,
    TopTokens,
    add_bias,
    apply_bitmask,
    apply_dry,
    apply_guidance,
    measure_masses,
    penalise,
    sample,
)
from constrain.kernels.graphs import Event, SideStream
from constrain.runtime.model_runner import ModelRunner, PassOutput
from constrain.runtime.sampler.inputs import SamplingInputs, SamplingRow
from constrain.runtime.sampler.pools import BiasPool, MaskPool

#: Maximum number of masks cached on the device: 64 MB for a vocabulary of 128,000 tokens.
_MAX_MASKS = 4096
#: Maximum number of masks cached on the CPU, where uploads are cheap: four for each row of a pass.
_MAX_HOST_MASKS = 1024
#: Maximum number of candidates that the sampling kernel holds in shared memory.
_MAX_CANDIDATES = 1024


class _Variant(NamedTuple):
    """Settings that select the CUDA graph of a batch."""

    masked: bool
    sparse: bool
    penalised: bool
    dry: bool
    biased: bool
    guided: bool
    shaped: bool
    candidates: int
    top: int
    raw: bool
    final: bool
    measured: bool
    uniform: bool

    @property
    def changes_logits(self) -> bool:
        """Whether logits are changed in place before a token is sampled from them."""
        return self.guided or self.penalised or self.biased or self.dry


class Reported(NamedTuple):
    """Values of a pass, each ``[rows, ...]``; ``None`` where not requested.

    Attributes:
        tokens, probabilities: ``[rows]``, the sampled tokens, and their probabilities.
        top_ids, top_probabilities: ``[rows, k]``, the most likely tokens.
        raw, final: logits ``[rows, padded vocabulary]``, as the model returns them, and as they are sampled from.
        logprobs: ``[rows]``, log probabilities of the sampled tokens by the model alone.
        likely_ids, likely_logprobs: ``[rows, k]``, the most likely tokens by the model alone.
        sums, choices: how the mask divides the probability, as in :class:`constrain.kernels.Masses`, if all logits were
            computed.
    """

    tokens: torch.Tensor
    probabilities: torch.Tensor
    top_ids: torch.Tensor | None = None
    top_probabilities: torch.Tensor | None = None
    raw: torch.Tensor | None = None
    final: torch.Tensor | None = None
    logprobs: torch.Tensor | None = None
    likely_ids: torch.Tensor | None = None
    likely_logprobs: torch.Tensor | None = None
    sums: torch.Tensor | None = None
    choices: torch.Tensor | None = None


class SampledBatch(NamedTuple):
    """Sampled tokens on the host, with what was requested besides.

    Attributes:
        tokens: the token of each row, -1 if none could be sampled.
        probabilities: of the tokens.
        top: by row, the most likely tokens and their probabilities, each ``[1, 1, k]``.
        raw, final: the logits of each row, ``[1, 1, padded vocabulary]``, see :class:`Reported`.
        logprobs: by row, the log probability of the token by the model alone, and the most likely tokens with theirs.
        masses: the sums and choices of :class:`Reported`, by row.
        states: ``[rows, hidden]``, the input of the head, if confidence was requested and only the logits of few tokens
            were computed.
    """

    tokens: list[int]
    probabilities: list[float]
    top: Sequence[tuple[torch.Tensor, torch.Tensor]] | None
    raw: Sequence[torch.Tensor] | None
    final: Sequence[torch.Tensor] | None
    logprobs: Sequence[tuple[float, list[tuple[int, float]]]] | None
    masses: tuple[list[list[float]], npt.NDArray[np.float32]] | None
    states: torch.Tensor | None


class PendingSamples:
    """Sampled tokens that are being copied to the host."""

    def __init__(self, reported: Reported, states: torch.Tensor | None, side: SideStream) -> None:
        """
        Args:
            reported, states: see :class:`SampledBatch`.
            side: copies in parallel to work queued later, which must not change the values before the copy ends.
        """
        # Later work on the device could overwrite tensors that nothing refers to while they are copied.
        self._source, self._states = reported, states
        side.follow()
        with side.queue():
            self._reported = _each(_to_host, reported)
            self._copied = Event(reported.tokens.device)

    def wait(self) -> SampledBatch:
        """Wait for the tokens, and return them."""
        self._copied.wait()
        tokens, chances, ids, probabilities, raw, final, logprobs, likely_ids, likely, sums, choices = self._reported
        return SampledBatch(
            tokens.tolist(),
            chances.tolist(),
            None if ids is None or probabilities is None else [*zip(_by_row(ids), _by_row(probabilities), strict=True)],
            None if raw is None else _by_row(raw),
            None if final is None else _by_row(final),
            None
            if logprobs is None or likely_ids is None or likely is None
            else _logprobs(logprobs, likely_ids, likely),
            None if sums is None or choices is None else (sums.tolist(), choices.numpy()),
            self._states,
        )


class BatchSampler:
    """Samples a token for each row of a pass."""

    def __init__(self, runner: ModelRunner, width: int) -> None:
        """``width``: number of tokens to sample from, the first of the vocabulary."""
        self._runner, self.width = runner, width
        device = runner.device
        words = (runner.model.config.padded_vocab_size + 31) // 32
        self._masks = MaskPool(_MAX_MASKS if device.type == "cuda" else _MAX_HOST_MASKS, words, runner.uploads, device)
        self._biases = BiasPool(runner.max_rows, runner.model.config.padded_vocab_size, runner.uploads, device)
        self._probabilities = torch.zeros(runner.max_rows, device=device)
        self._side = SideStream(device)
        self._static: dict[Any, SamplingInputs] = {}
        self._graphs: dict[Any, Callable[[], Reported]] = {}

    def sample(self, output: PassOutput, rows: Sequence[SamplingRow]) -> PendingSamples:
        """Queue the sampling of a token for each row of a pass, into ``ModelRunner.sampled``."""
        variant, allowed = self._variant(rows)
        count = len(rows)
        if allowed is not None and self._is_decided(allowed):
            self._side.join()
            tokens = [token for (token,) in allowed]
            self._runner.uploads.send(self._runner.sampled[:count], tokens)
            self._probabilities[:count] = 1.0
            reported = Reported(self._runner.sampled, self._probabilities)
        else:
            reported = self._with_logprobs(self._queue(output, rows, variant, allowed), rows)
        unmeasured = reported.sums is None and any(row.measured for row in rows)
        states = output.states[:count] if unmeasured else None
        return PendingSamples(_each(lambda values: values[:count], reported), states, self._side)

    def _with_logprobs(self, reported: Reported, rows: Sequence[SamplingRow]) -> Reported:
        """Add log probabilities by the model alone, if requested; drop logits that were needed for these only."""
        count, raw = max(row.logprobs for row in rows), reported.raw
        if count < 0 or raw is None:
            return reported
        with torch.inference_mode():
            logprobs = raw[: len(rows), : self.width].log_softmax(dim=-1)
            tokens = self._runner.sampled[: len(rows), None].clamp(min=0)
            likely, ids = logprobs.topk(max(1, min(count, self.width)))
            own = logprobs.gather(1, tokens)[:, 0]
        kept = raw if any(row.raw for row in rows) else None
        return reported._replace(raw=kept, logprobs=own, likely_ids=ids, likely_logprobs=likely)

    def _is_decided(self, allowed: Sequence[Sequence[int]]) -> bool:
        """Return whether every row has a single allowed token."""
        return all(len(each) == 1 for each in allowed)

    def _variant(self, rows: Sequence[SamplingRow]) -> tuple[_Variant, list[Sequence[int]] | None]:
        """Return the settings that the rows need, and the allowed tokens of each row if all have few."""
        fields = dict(zip(SamplingRow._fields, zip(*rows, strict=True), strict=True))  # of all rows
        params = {id(each): each for each in fields["params"]}  # many rows have the same ones
        raw, final = any(fields["raw"]) or max(fields["logprobs"]) >= 0, any(fields["final"])
        measured = any(fields["measured"])
        top, guided = max(fields["top_tokens"]), max(fields["partner"]) >= 0
        # A GPU computes all logits that are measured at once: the host would have to wait for what it computes later.
        at_once = self._runner.device.type == "cuda" or any(fields["at_once"])
        whole = guided or top or raw or final or (measured and at_once)
        allowed = None if whole else _few_allowed(rows, self.width)
        sparse = allowed is not None and len(set().union(*allowed)) <= MAX_LISTED_TOKENS
        shaped = {key for key, each in params.items() if each.is_shaped}
        counts = [row.params.top_k for row in rows if row.top_tokens or id(row.params) in shaped]
        bounded = all(0 < count <= _MAX_CANDIDATES for count in counts)
        variant = _Variant(
            masked=any(each is not None for each in fields["mask"]),
            sparse=sparse,
            penalised=any(each.has_penalties for each in params.values()),
            dry=any(each.dry_multiplier > 0 for each in params.values()),
            biased=any(fields["bias"]) or any(each.bias for each in params.values()),
            guided=guided,
            shaped=bool(counts),
            candidates=1 << (max(*counts, top, 1) - 1).bit_length() if counts and bounded else 0,
            top=top,
            raw=raw,
            final=final,
            measured=measured and not sparse,
            uniform=any(each is not None for each in fields["uniform"]),
        )
        return variant, allowed

    def _queue(
        self,
        output: PassOutput,
        rows: Sequence[SamplingRow],
        variant: _Variant,
        allowed: Sequence[Sequence[int]] | None,
    ) -> Reported:
        """Upload sampling inputs on the side stream, in parallel to the layers, and queue sampling after both."""
        with self._side.queue():
            inputs = self._inputs(output)
            inputs.set(rows)
            if variant.masked:
                inputs.choose("masks", self._masks.rows([row.mask for row in rows]))
            if variant.sparse and allowed is not None:
                inputs.send_allowed(sorted(set().union(*allowed)))
            if variant.biased:
                inputs.choose("biases", self._biases.rows([row.bias or row.params.bias for row in rows]))
            if variant.guided:
                inputs.choose("partners", [row.partner for row in rows])
                inputs.choose("pairs", [i if row.pair < 0 else row.pair for i, row in enumerate(rows)])
            if variant.dry:
                inputs.choose("breakers", self._masks.rows([row.params.dry_breakers for row in rows]))
            if variant.shaped:
                inputs.send_mu(rows)
                inputs.choose("protected", self._masks.rows([row.params.xtc_protected for row in rows]))
            if variant.uniform:
                inputs.send_uniform([-1.0 if row.uniform is None else row.uniform for row in rows])
            if variant.measured:
                inputs.choose("watched", self._masks.rows([row.watched for row in rows]))
        self._side.join()
        return self._compute_or_replay(output, inputs, variant)

    def _inputs(self, output: PassOutput) -> SamplingInputs:
        count = len(output.lengths)
        if output.static is None:
            return SamplingInputs(count, self._runner.device, self._runner.uploads)
        inputs = self._static.get(output.static)
        if inputs is None:
            inputs = self._static[output.static] = SamplingInputs(count, self._runner.device, self._runner.uploads)
        return inputs

    def _compute_or_replay(self, output: PassOutput, inputs: SamplingInputs, variant: _Variant) -> Reported:
        scratch = PenaltyScratch() if variant.penalised else None
        compute = partial(self._compute, output, inputs, variant, scratch)
        if output.static is None or not self._runner.has_graphs or self._runner.model.config.no_graphs:
            return compute()
        run = self._graphs.get((output.static, variant))
        if run is None:
            run = self._graphs[output.static, variant] = self._runner.capture(compute)
        return run()

    def _compute(
        self, output: PassOutput, inputs: SamplingInputs, variant: _Variant, scratch: PenaltyScratch | None
    ) -> Reported:
        with torch.inference_mode():
            whole = self._logits(output, inputs, variant)
            logits = whole[:, : self.width]
            raw = whole.clone() if variant.raw or (variant.measured and variant.changes_logits) else whole
            if variant.guided:
                apply_guidance(logits, inputs.chosen["partners"], inputs.guidance)
            if scratch is not None:
                penalise(logits, output.history, output.lengths, inputs.penalties, scratch)
            if variant.biased:
                add_bias(logits, self._biases.biases[:, : self.width], inputs.chosen["biases"])
            if variant.dry:
                apply_dry(logits, output.history, output.lengths, inputs.dry, self._chosen(inputs, "breakers"))
            masks = self._chosen(inputs, "masks") if variant.masked else None
            out = self._runner.sampled[: len(logits)], self._probabilities[: len(logits)]
            top = TopTokens.empty(inputs.top_counts, variant.top) if variant.top else None
            sample(
                logits,
                inputs.sampling(output.lengths, variant.shaped, variant.uniform),
                out,
                masks,
                protected=self._chosen(inputs, "protected") if variant.shaped else None,
                top=top,
                shaped=variant.shaped,
                max_candidates=variant.candidates or None,
            )
            if variant.guided:
                out[0].copy_(out[0][inputs.chosen["pairs"].long()])
            reported = Reported(*out, raw=raw if variant.raw else None)
            if top is not None:
                reported = reported._replace(top_ids=top.ids, top_probabilities=top.probabilities)
            if variant.measured:
                masses = measure_masses(raw[:, : self.width], out[0], masks, self._chosen(inputs, "watched"))
                reported = reported._replace(sums=masses.sums, choices=masses.choices)
            return reported._replace(final=self._final(whole, masks)) if variant.final else reported

    def _logits(self, output: PassOutput, inputs: SamplingInputs, variant: _Variant) -> torch.Tensor:
        model = self._runner.model
        if not variant.sparse:
            return model.head(output.states, output.context).float()
        tokens = inputs.allowed.long()
        # No mask allows the other tokens, so their logits are never read.
        logits = torch.empty(len(output.states), self.width, device=tokens.device)
        return logits.index_copy_(1, tokens, model.head(output.states, output.context, tokens).float())

    def _final(self, logits: torch.Tensor, masks: ChosenRows | None) -> torch.Tensor:
        """Return the logits that were sampled from; those of excluded tokens are -inf."""
        final = logits.clone()
        final[:, self.width :] = -torch.inf
        if masks is not None:
            apply_bitmask(final[:, : self.width], masks.bits, masks.chosen)
        return final

    def _chosen(self, inputs: SamplingInputs, name: str) -> ChosenRows:
        return ChosenRows(self._masks.bits[:, : (self.width + 31) // 32], inputs.chosen[name])


def _few_allowed(rows: Sequence[SamplingRow], width: int) -> list[Sequence[int]] | None:
    """Return the tokens of each row's mask, if all masks have few and all tokens are below ``width``."""
    found: list[Sequence[int]] = []
    for row in rows:
        tokens = token_list(row.mask)
        if not tokens or tokens[-1] >= width:
            return None
        found.append(tokens)
    return found


def _each(change: Callable[[torch.Tensor], torch.Tensor], reported: Reported) -> Reported:
    """Apply a function to the values that were requested."""
    return Reported(*(None if each is None else change(each) for each in reported))  # type: ignore[arg-type]


def _by_row(values: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return views ``[1, 1, n]`` of the rows of ``[rows, n]``, the shape in which generators return them."""
    return values[:, None, None].unbind(0)


def _logprobs(
    own: torch.Tensor, ids: torch.Tensor, likely: torch.Tensor
) -> list[tuple[float, list[tuple[int, float]]]]:
    pairs = [[*zip(*row, strict=True)] for row in zip(ids.tolist(), likely.tolist(), strict=True)]
    return [*zip(own.tolist(), pairs, strict=True)]


def _to_host(values: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda).copy_(values, non_blocking=True)
