"""Decode steps: one token for each of many sequences over pages, as one CUDA graph where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch

from constrain.errors import GenerationError
from constrain.kernels import AttentionWorkspace, Pages, Parts, StepTokens, TextPages, enter_tokens, kernels_read
from constrain.kernels import cuda as compiled
from constrain.kernels.graphs import Graph, Uploads

if TYPE_CHECKING:
    from constrain.model.cache import ExLlamaV2CacheBase
    from constrain.model.model import ExLlamaV2
    from constrain.model.paged import PagedRow

# A graph serves a number of rows and of pages, and idle rows fill it up.
_LEAST_PAGES = 4
# What the kernels read at a time of the rotated part of a head.
_PAIRS = 16


@dataclass(frozen=True)
class LayerSight:
    """What the layers of one kind, full or sliding, need.

    Attributes:
        cos, sin: rotation by position, ``[positions, 1, d]``.
        window: positions that a query sees; ``None``: all.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    window: int | None


@dataclass(frozen=True)
class DecodeStep:
    """What all layers share in one step.

    Attributes:
        lengths: int32 ``[rows]``, positions after the step; 0 for an idle row.
        full, sliding: of the two kinds of layers.
        pages: by layer.
        workspace: of the attention.
    """

    lengths: torch.Tensor
    full: LayerSight
    sliding: LayerSight
    pages: Sequence[Pages]
    workspace: AttentionWorkspace


class DecodeRow(NamedTuple):
    """The tokens of one sequence that go through a step.

    Attributes:
        token: the id of the first, or the row of the step before that it was drawn in.
        past: number of positions before it.
        pages: numbers of the pages that hold the sequence, in order.
        drawn: whether ``token`` is a row.
        ahead: ids of tokens that may follow; only in a step of this sequence alone.
    """

    token: int
    past: int
    pages: Sequence[int]
    drawn: bool = False
    ahead: Sequence[int] = ()


class StepShape:
    """Steps of many sequences with a token each, or of one with several, whose tensors stay where they are.

    Attributes:
        rows: number of tokens, those of idle sequences included.
        block_table: int32 ``[sequences, pages]``.
        lengths: int32 ``[rows]``, of the sequence up to each token, itself included; 0 for idle ones.
        text: that of each token.
        states: ``[sequences, tokens of each, hidden]``, once a step has run.
    """

    def __init__(self, sequences: int, width: int, pages: int, text: torch.Tensor) -> None:
        device = text.device
        self.sequences, self.rows = sequences, sequences * width
        self.moving = torch.zeros(2, self.rows, dtype=torch.int, device=device)
        self.moving[1] = -1
        ids, self.lengths = torch.zeros(2, self.rows, dtype=torch.int, device=device)
        self.tokens = StepTokens(self.moving[0], self.moving[1], ids, self.lengths)
        self.block_table = torch.zeros(sequences, pages, dtype=torch.int, device=device)
        self.text = TextPages(text, self.block_table.expand(self.rows, pages))
        self.pages: list[Sequence[int]] = []
        #: What ``moving`` holds by the time of the next step, if nothing is sent.
        self.coming: list[int] = []
        self.states = torch.empty(0)
        self.run: Callable[[], torch.Tensor]


class Decoder:
    """Runs decode steps of a model over the pages of a cache.

    The tensors of a step stay where they are, so that on a GPU the whole of it is a graph.

    Attributes:
        page_size: positions of a page.
        drawn: int64 ``[most rows]``: whoever draws tokens from the states of a step leaves them here for the next.
        uploads: what was sent to the device.
    """

    #: Most rows of a step.
    most_rows = 256

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int) -> None:
        """
        Args:
            model: loaded, on one device.
            cache: of one row.
            page_size: positions of a page.
        """
        device = model.modules[0].device
        self.page_size = page_size
        self.model = model
        self.drawn = torch.zeros(self.most_rows, dtype=torch.int64, device=device)
        self.uploads = Uploads(device)
        self.graphs = device.type == "cuda" and not model.config.no_graphs
        self._codings = cache.key_coding, cache.value_coding
        self._layers = [
            tuple(_paged(parts, page_size) for parts in cache.parts(layer)) for layer in range(cache.num_hidden_layers)
        ]
        self._text = torch.zeros(cache.max_seq_len // page_size, page_size, dtype=torch.int, device=device)
        self._full, self._sliding = model.layer_sights(min(cache.max_seq_len, model.config.max_seq_len))
        self._shapes: dict[tuple[int, int, int], StepShape] = {}

    def logits(self, rows: Sequence[PagedRow]) -> torch.Tensor:
        """Logits ``[rows, padded vocabulary]`` after the one new token of each row, whose keys and values are stored.

        Raises:
            GenerationError: an id is outside the vocabulary.
        """
        shape = self.run([DecodeRow(int(row.ids[0]), row.past, row.pages) for row in rows])
        # Outside of inference mode, so that the logits are an ordinary tensor which a sampler may change.
        with torch.no_grad():
            return self.model.decode_logits(shape.states)[: len(rows)]

    def run(self, rows: Sequence[DecodeRow]) -> StepShape:
        """Take the tokens of each row through all layers; their keys and values are stored.

        Tokens ``ahead`` are filled up to a power of two, less one, for which there is to be room: see :meth:`fitting`.

        Returns:
            What holds the states behind them, until the next step of the same shape.

        Raises:
            GenerationError: an id is outside the vocabulary.
        """
        size = self.model.config.vocab_size
        for row in rows:
            if not row.drawn and not 0 <= row.token < size:
                raise GenerationError(f"token id {row.token} is outside the model's vocabulary of {size}")
        width, pages = 1 << len(rows[0].ahead).bit_length(), max(len(row.pages) for row in rows)
        kind = _bucket(len(rows)), width, max(_LEAST_PAGES, 1 << (pages - 1).bit_length())
        shape = self._shapes.get(kind) or self._make_shape(*kind)
        tokens = [token for row in rows for token in (~row.token if row.drawn else row.token, *row.ahead)]
        past = [row.past + i for row in rows for i in range(width)]
        idle = shape.rows - len(past)
        moving = [*tokens, *[0] * (shape.rows - len(tokens)), *past, *[-1] * idle]
        # The next tokens of the same sequences need nothing from the host.
        if moving != shape.coming:
            self.uploads.send(shape.moving, moving)
        busy = len(past)
        shape.coming = [*range(-1, ~busy, -1), *[0] * idle, *[each + 1 for each in past], *[-1] * idle]
        self._send_pages(shape, [row.pages for row in rows])
        shape.states = shape.run()
        return shape

    def fitting(self, row: DecodeRow) -> Sequence[int]:
        """As many of the tokens ``ahead`` of a row as there is room for on its pages."""
        room = len(row.pages) * self.page_size - row.past
        return row.ahead[: (1 << room.bit_length() >> 1) - 1]

    def write_texts(self, texts: Sequence[tuple[Sequence[int], torch.Tensor]]) -> None:
        """Make sequences known whose tokens did not all come through :meth:`run`.

        Args:
            texts: of each sequence its pages, and its tokens, int64 ``[n]``, from its first position on.
        """
        pages = torch.tensor([page for own, _ in texts for page in own])
        first_pages = torch.tensor([0, *accumulate(len(own) for own, _ in texts)])
        lengths = torch.tensor([len(tokens) for _, tokens in texts])
        text = torch.repeat_interleave(lengths)  # the number of its text, for each token
        positions = torch.arange(len(text)) - (lengths.cumsum(0) - lengths)[text]
        slots = pages[first_pages[text] + positions // self.page_size] * self.page_size + positions % self.page_size
        values = torch.stack([slots, torch.cat([tokens for _, tokens in texts])])
        sent = torch.empty(values.shape, dtype=torch.int, device=self.drawn.device)
        self.uploads.send(sent, values)
        self._text.view(-1)[sent[0].long()] = sent[1]

    def _send_pages(self, shape: StepShape, table: list[Sequence[int]]) -> None:
        if table == shape.pages:
            return
        shape.pages = table
        sequences, width = shape.block_table.shape
        filled = [page for own in table for page in (*own, *[0] * (width - len(own)))]
        self.uploads.send(shape.block_table, filled + [0] * ((sequences - len(table)) * width))

    def _make_shape(self, sequences: int, width: int, pages: int) -> StepShape:
        shape = StepShape(sequences, width, pages, self._text)
        layers = [Pages(keys, values, shape.block_table, *self._codings) for keys, values in self._layers]
        lengths = shape.lengths[-sequences:]  # of each sequence its last token's
        # A workspace of its own, since one that several graphs share moves when it grows.
        step = DecodeStep(lengths, self._full, self._sliding, layers, AttentionWorkspace())
        compute = partial(self._compute, shape, step)
        shape.run = Graph(compute) if self.graphs else compute
        self._shapes[sequences, width, pages] = shape
        return shape

    def _compute(self, shape: StepShape, step: DecodeStep) -> torch.Tensor:
        with torch.inference_mode():
            enter_tokens(shape.tokens, self.drawn, shape.text)
            return self.model.decode(shape.tokens.ids.view(shape.sequences, -1), step)


def takes(model: ExLlamaV2, cache: ExLlamaV2CacheBase, rows: Sequence[PagedRow]) -> bool:
    """Whether these rows are a decode step that a GPU runs faster as a graph."""
    return (
        all(row.width == 1 and row.logits == 1 and row.past < model.config.max_seq_len for row in rows)
        and len(rows) <= Decoder.most_rows
        and supports(model, cache, rows[0].page_size)
    )


def supports(model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int) -> bool:
    """Whether a :class:`Decoder` is faster than ordinary passes: on a GPU, where the kernels take model and cache."""
    return (
        compiled.module is not None
        and model.modules[0].device.type == "cuda"
        and model.compute_dtype is not torch.float32
        and kernels_read(cache.key_coding, cache.value_coding, model.config.head_dim, page_size)
        and model.config.rope.dim % _PAIRS == 0
        and model.is_decodable
    )


def _paged(parts: Parts, page_size: int) -> Parts:
    whole = parts[0].shape[1] // page_size
    return tuple(part[0, : whole * page_size].view(whole, page_size, *part.shape[2:]) for part in parts)


def _bucket(rows: int) -> int:
    """1, 2, 4, 8, and from there on multiples of 8."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8
