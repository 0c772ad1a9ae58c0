"""Decode steps: one token for each of many sequences over pages, as one CUDA graph where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from constrain.errors import GenerationError
from constrain.kernels import AttentionWorkspace, Pages, PlainCoding
from constrain.kernels import cuda as compiled

if TYPE_CHECKING:
    from constrain.model.cache import ExLlamaV2CacheBase
    from constrain.model.model import ExLlamaV2
    from constrain.model.paged import PagedRow

# A graph serves a number of rows and of pages, and idle rows fill it up.
_MOST_ROWS = 256
_LEAST_PAGES = 4
# What the kernels read at a time, of keys, of a head, and of its rotated part.
_TILE, _PACK, _PAIRS = 16, 8, 16
_WARM_UP_RUNS = 2


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
    """What all layers share in one step; the tensors are int32.

    Attributes:
        past, lengths: ``[rows]``, positions before and after the step; -1 and 0 for an idle row.
        full, sliding: of the two kinds of layers.
        pages: by layer.
        workspace: of the attention.
    """

    past: torch.Tensor
    lengths: torch.Tensor
    full: LayerSight
    sliding: LayerSight
    pages: Sequence[Pages]
    workspace: AttentionWorkspace


class Decoder:
    """Runs decode steps of a model over the pages of a cache.

    The tensors of a step stay where they are, so that on a GPU the whole of it is a graph, which the host starts with a
    single call: hundreds of kernels, each of a few microseconds, would otherwise wait for the host.

    Args:
        model: loaded, on one device.
        cache: of one row, in the model's dtype.
        page_size: positions of a page.
    """

    def __init__(self, model: ExLlamaV2, cache: ExLlamaV2CacheBase, page_size: int) -> None:
        self.page_size = page_size
        self._model = model
        self._device = model.modules[0].device
        self._states = [
            (_paged(keys, page_size), _paged(values, page_size))
            for keys, values in zip(cache.key_states, cache.value_states, strict=True)
        ]
        self._full, self._sliding = model.layer_sights(cache.max_seq_len)
        self._workspace = AttentionWorkspace()
        self._steps: dict[tuple[int, int], Callable[[torch.Tensor], torch.Tensor]] = {}

    def logits(self, rows: Sequence[PagedRow]) -> torch.Tensor:
        """Logits ``[rows, padded vocabulary]`` after the one new token of each row, whose keys and values are stored.

        Raises:
            GenerationError: an id is outside the vocabulary.
        """
        count, pages = _bucket(len(rows)), max(len(row.pages) for row in rows)
        pages = max(_LEAST_PAGES, 1 << (pages - 1).bit_length())
        given = self._inputs(rows, count, pages)
        step = self._steps.get((count, pages))
        if step is None:
            step = self._steps[count, pages] = self._make_step(count, pages)
        return step(given)[: len(rows)]

    def _inputs(self, rows: Sequence[PagedRow], count: int, pages: int) -> torch.Tensor:
        """One tensor, so that it is copied to the device at once: ids, past, lengths, and the block table."""
        ids = [int(row.ids[0]) for row in rows]
        for token in ids:
            if not 0 <= token < self._model.config.vocab_size:
                size = self._model.config.vocab_size
                raise GenerationError(f"token id {token} is outside the model's vocabulary of {size}")
        idle = count - len(rows)
        past = [row.past for row in rows]
        heads = [*ids, *[0] * idle, *past, *[-1] * idle, *[each + 1 for each in past], *[0] * idle]
        table = [page for row in rows for page in (*row.pages, *[0] * (pages - len(row.pages)))]
        return torch.tensor(
            heads + table + [0] * (idle * pages), dtype=torch.int, pin_memory=self._device.type == "cuda"
        )

    def _make_step(self, count: int, pages: int) -> Callable[[torch.Tensor], torch.Tensor]:
        inputs = torch.zeros(count * (3 + pages), dtype=torch.int, device=self._device)
        inputs[count : 2 * count] = -1
        ids, past, lengths = inputs[: 3 * count].view(3, count)
        table = inputs[3 * count :].view(count, pages)
        layers = [Pages(keys, values, table) for keys, values in self._states]
        step = DecodeStep(past, lengths, self._full, self._sliding, layers, self._workspace)
        compute: Callable[[], torch.Tensor] = partial(self._compute, ids, step)
        if self._device.type == "cuda" and not self._model.config.no_graphs:
            compute = _graph(compute)

        def run(given: torch.Tensor) -> torch.Tensor:
            inputs.copy_(given, non_blocking=True)
            # Outside of inference mode, so that the copy is an ordinary tensor which a sampler may change.
            return compute().clone()

        return run

    def _compute(self, ids: torch.Tensor, step: DecodeStep) -> torch.Tensor:
        with torch.inference_mode():
            return self._model.decode(ids, step)


def takes(model: ExLlamaV2, cache: ExLlamaV2CacheBase, rows: Sequence[PagedRow]) -> bool:
    """Whether these rows are a decode step that a GPU runs faster as a graph."""
    return (
        all(row.width == 1 and row.logits == 1 for row in rows)
        and len(rows) <= _MOST_ROWS
        and compiled.module is not None
        and model.modules[0].device.type == "cuda"
        and model.compute_dtype is not torch.float32
        and isinstance(cache.key_coding, PlainCoding)
        and rows[0].page_size % _TILE == 0
        and model.config.head_dim % _PACK == 0
        and model.config.rope.dim % _PAIRS == 0
        and model.is_decodable
    )


def _paged(states: torch.Tensor | None, page_size: int) -> torch.Tensor:
    assert states is not None
    whole = states.shape[1] // page_size
    return states[0, : whole * page_size].view(whole, page_size, *states.shape[2:])


def _bucket(rows: int) -> int:
    """1, 2, 4, 8, and from there on multiples of 8."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8


def _graph(compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Work on tensors that stay where they are, recorded."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_RUNS):
            compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compute()

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay
