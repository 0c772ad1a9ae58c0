"""Drawing tokens on the device of the model, from the states that a decode step leaves there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from constrain.filters.masks import MOST_FEW, TokenMask, few
from constrain.generator.mask_pool import MaskPool
from constrain.generator.settings import Settings
from constrain.kernels import ChosenRows, PenaltyParameters, PenaltyScratch, SamplingTensors, penalise, sample
from constrain.kernels.graphs import Graph, SideStream
from constrain.model.decode import Decoder, StepShape


class RowSettings(NamedTuple):
    """How the token of a row is drawn: a seed, and fields of :class:`Settings`."""

    seed: int = 0
    temperature: float = 0.0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    top_k: int = 1
    range: int = 0
    decay: int = 0

    @property
    def penalises(self) -> bool:
        """Whether the draw depends on the text."""
        return self.repetition != 1.0 or self.frequency != 0.0 or self.presence != 0.0


_FLOATS = slice(1, 7)
_INTEGERS = slice(7, 10)


def row_settings(settings: Settings, seed: int) -> RowSettings | None:
    """What the kernels go by for these settings; ``None`` where they do not know some of them."""
    s = settings
    if (
        s.smoothing_factor > 0
        or s.max_temp > s.min_temp
        or (s.temperature_last and s.temperature != 1.0)
        or s.top_a > 0
        or 0 < s.tfs < 1
        or 0 < s.typical < 1
        or s.skew
        or s.mirostat
        or s.dry_multiplier > 0
        or s.xtc_probability > 0
        or s.token_bias is not None
        or s.cfg_scale is not None
        or s.post_sampling_hooks
    ):
        return None
    return RowSettings(
        seed,
        s.temperature,
        s.top_p,
        s.min_p,
        s.token_repetition_penalty,
        s.token_frequency_penalty,
        s.token_presence_penalty,
        s.top_k,
        s.token_repetition_range,
        s.token_repetition_decay,
    )


class Drawing:
    """Tokens that are being drawn, on their way to the host."""

    def __init__(self, tokens: torch.Tensor, probabilities: torch.Tensor, beside: SideStream) -> None:
        """``beside``: copies them beside what is queued next, which must not change them before that is done."""
        self._event: Any = None
        beside.follow()
        with beside.queue():
            self._tokens, self._probabilities = _to_host(tokens), _to_host(probabilities)
            if tokens.is_cuda:
                self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._event.record()

    def wait(self) -> tuple[list[int], list[float]]:
        """The token of each row, -1 where none could be drawn, and its probability."""
        if self._event is not None:
            self._event.synchronize()
        return self._tokens.tolist(), self._probabilities.tolist()


class StepSampler:
    """The second half of a decode step: the head of the model, penalties, masks and the draw, as one graph.

    What a row draws depends on its states, settings and mask alone: its random number is that of its seed and of the
    length of its text.
    """

    def __init__(self, decoder: Decoder, width: int, masks: MaskPool) -> None:
        """
        Args:
            decoder: makes the steps.
            width: number of tokens to draw from, the first of the vocabulary.
            masks: what allows them.
        """
        self._decoder, self._width, self._masks = decoder, width, masks
        device = decoder.drawn.device
        self._probabilities = torch.zeros(decoder.most_rows, device=device)
        #: Where tokens are read, and then what the next draw needs is sent.
        self._beside = SideStream(device)
        self._inputs: dict[StepShape, _Inputs] = {}
        self._draws: dict[tuple[StepShape, bool, bool, bool], Callable[[], None]] = {}

    def draw(self, shape: StepShape, rows: Sequence[RowSettings], masks: Sequence[TokenMask | None]) -> Drawing:
        """Draw the token of each row of the step that has run last; it is then in ``Decoder.drawn``."""
        allowed = _allowed(masks, self._width)
        if allowed is not None and all(len(each) == 1 for each in allowed):
            self._beside.join()
            self._take([token for (token,) in allowed])
        else:
            self._queue(shape, rows, masks, None if allowed is None else sorted(set().union(*allowed)))
        return Drawing(self._decoder.drawn[: len(rows)], self._probabilities[: len(rows)], self._beside)

    def _take(self, tokens: list[int]) -> None:
        """Draw the only tokens that there are."""
        self._decoder.uploads.send(self._decoder.drawn[: len(tokens)], tokens)
        self._probabilities[: len(tokens)] = 1.0

    def _queue(
        self,
        shape: StepShape,
        rows: Sequence[RowSettings],
        masks: Sequence[TokenMask | None],
        allowed: Sequence[int] | None,
    ) -> None:
        """Send what a draw needs beside the layers, which do not look at it, and queue the draw behind both."""
        masked, penalised = any(masks), any(row.penalises for row in rows)
        sparse = allowed is not None and len(allowed) <= MOST_FEW
        with self._beside.queue():
            inputs = self._inputs.get(shape)
            if inputs is None:
                inputs = self._inputs[shape] = _Inputs(shape.rows, self._decoder)
            inputs.set(rows)
            if masked:
                inputs.choose(self._masks.places(masks))
            if allowed is not None and sparse:
                inputs.allow(allowed)
        self._beside.join()
        kind = shape, penalised, masked, sparse
        run = self._draws.get(kind)
        if run is None:
            scratch = PenaltyScratch() if penalised else None
            run = partial(self._compute, shape, inputs, scratch, masked, sparse)
            run = self._draws[kind] = Graph(run) if self._decoder.graphs else run
        run()

    def _compute(
        self, shape: StepShape, inputs: _Inputs, scratch: PenaltyScratch | None, masked: bool, sparse: bool
    ) -> None:
        with torch.inference_mode():
            model = self._decoder.model
            if sparse:
                tokens = inputs.allowed.long()
                # The others are allowed by no mask, and so not looked at.
                logits = torch.empty(shape.rows, self._width, device=tokens.device)
                logits.index_copy_(1, tokens, model.decode_logits(shape.states, tokens).float())
            else:
                logits = model.decode_logits(shape.states).float()[:, : self._width]
            if scratch is not None:
                penalise(logits, shape.text, shape.lengths, inputs.penalties, scratch)
            masks = ChosenRows(self._masks.bits[:, : (self._width + 31) // 32], inputs.chosen) if masked else None
            out = self._decoder.drawn[: shape.rows], self._probabilities[: shape.rows]
            sample(logits, inputs.parameters(shape.lengths), out, masks)


class _Inputs:
    """The settings of the rows of a shape, on the device."""

    def __init__(self, rows: int, decoder: Decoder) -> None:
        device = decoder.drawn.device
        self.chosen = torch.full((rows,), -1, dtype=torch.int, device=device)
        #: Tokens that the masks allow, and others.
        self.allowed = torch.zeros(MOST_FEW, dtype=torch.int, device=device)
        self._seeds = torch.zeros(rows, dtype=torch.int64, device=device)
        self._floats = torch.zeros(6, rows, device=device)
        self._integers = torch.zeros(3, rows, dtype=torch.int, device=device)
        self._uploads = decoder.uploads
        self._settings: list[RowSettings] = []
        self._sent: dict[torch.Tensor, list[Any]] = {}

    @property
    def penalties(self) -> PenaltyParameters:
        repetition, frequency, presence = self._floats[3:]
        _, ranges, decays = self._integers
        return PenaltyParameters(repetition, ranges, decays, frequency, presence)

    def parameters(self, lengths: torch.Tensor) -> SamplingTensors:
        temperature, top_p, min_p = self._floats[:3]
        return SamplingTensors(temperature, self._integers[0], top_p, min_p, self._seeds, lengths)

    def set(self, rows: Sequence[RowSettings]) -> None:
        """Send settings if they are not those that are there."""
        settings = [*rows, *[RowSettings()] * (len(self.chosen) - len(rows))]
        if settings == self._settings:
            return
        self._settings = settings
        self._update(self._seeds, [row.seed for row in settings])
        self._update(self._floats, list(zip(*(row[_FLOATS] for row in settings), strict=True)))
        self._update(self._integers, list(zip(*(row[_INTEGERS] for row in settings), strict=True)))

    def _update(self, target: torch.Tensor, values: list[Any]) -> None:
        if self._sent.get(target) != values:
            self._sent[target] = values
            self._uploads.send(target, values)

    def choose(self, places: Sequence[int]) -> None:
        """Send the place of each row's mask."""
        self._uploads.send(self.chosen, [*places, *[-1] * (len(self.chosen) - len(places))])

    def allow(self, tokens: Sequence[int]) -> None:
        """Send the tokens that are allowed."""
        self._uploads.send(self.allowed[: len(tokens)], tokens)


def _allowed(masks: Sequence[TokenMask | None], width: int) -> list[Sequence[int]] | None:
    """The tokens of each mask, if all of them have few, and all below ``width``."""
    found: list[Sequence[int]] = []
    for mask in masks:
        tokens = few(mask)
        if tokens is None or tokens[-1] >= width:
            return None
        found.append(tokens)
    return found


def _to_host(values: torch.Tensor) -> torch.Tensor:
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda).copy_(values, non_blocking=True)
