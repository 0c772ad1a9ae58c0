"""Places of the images in a prompt, and the positions and attention of its tokens.

**Positions on three axes** (M-RoPE: Wang et al. 2024, Qwen2-VL, section 2.1). A token of text has one position, the
same on all axes: that after the largest before it. Tokens of an image have one time, and row and column count from
there, so that an image takes up fewer positions than it has tokens. Attention scores depend only on differences of
positions. So all positions of a prompt are raised by the number that its images save (``shift``); those of the tokens
after the last image then equal their indices, and decode passes need no special case. But keys of a prompt now depend
on the images after them, so prompts share them in the prefix cache only if their ``shift`` is equal.

**Attention both ways** (Gemma 3). Tokens of an image attend to all of them. A forward pass that computes the first of
these has to compute the last ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from constrain.errors import GenerationError
from constrain.model.embeddings import EMBEDDING_INDEX, IndexedEmbeddings
from constrain.model.traits import DecoderTraits

#: First position of a range, and one more than the last.
Span = tuple[int, int]


@dataclass(frozen=True)
class PromptImages:
    """Positions and attention of a prompt with images.

    Attributes:
        start: index of its first token in the sequence.
        positions: of its tokens on three axes, int64 ``[3, n]``; ``None``: their indices, on all axes.
        shift: number by which they are raised.
        both_ways: ranges of indices whose tokens attend to each other in both directions.
        end: index after the last token of the last image.
    """

    start: int = 0
    positions: torch.Tensor | None = None
    shift: int = 0
    both_ways: tuple[Span, ...] = ()
    end: int = 0

    @property
    def num_tokens(self) -> int:
        """Number of tokens that have positions of their own."""
        return 0 if self.positions is None else self.positions.shape[1]

    def between(self, first: int, end: int) -> torch.Tensor | None:
        """Return the positions of the tokens with the indices ``first`` to ``end - 1``."""
        return None if self.positions is None else self.positions[:, first - self.start : end - self.start]


NO_IMAGES = PromptImages()


def prompt_images(
    traits: DecoderTraits, ids: Sequence[int], blocks: Sequence[IndexedEmbeddings], start: int = 0
) -> PromptImages:
    """Find the images of a prompt.

    Args:
        traits: of the text model.
        ids: its tokens.
        blocks: the embeddings that ids refer to.
        start: index of the first token in the sequence.

    Raises:
        GenerationError: there is only a part of an image, or images on three axes come after a cached beginning.
    """
    if not blocks or not (traits.mrope or traits.images_both_ways):
        return NO_IMAGES
    found = sorted(_places(ids, blocks))
    if not found:
        return NO_IMAGES
    spans = tuple((start + first, start + first + rows * columns) for first, rows, columns in found)
    if not traits.mrope:
        return PromptImages(start, both_ways=spans, end=spans[-1][1])
    if start:
        raise GenerationError(
            "an image has to be in one call with all that stands before it: its positions depend on that"
        )
    positions, shift = _positions(len(ids), found)
    return PromptImages(start, positions, shift, spans if traits.images_both_ways else (), spans[-1][1])


def whole_end(end: int, spans: Sequence[Span]) -> int:
    """Return the end of a pass, ``end`` or later, so that it does not stop within a range."""
    return next((last for first, last in spans if first < end < last), end)


def _places(ids: Sequence[int], blocks: Sequence[IndexedEmbeddings]) -> list[tuple[int, int, int]]:
    """Return the first token, rows and columns of every image."""
    begins: dict[int, tuple[int, int]] = {}
    for block in blocks:
        grid = getattr(block, "thw_grid", None)
        if grid is not None:
            begins[block.first_index + getattr(block, "pre_tokens", 0)] = grid[0] * grid[1], grid[2]
    found = [(place, *begins[each]) for place, each in enumerate(ids) if each >= EMBEDDING_INDEX and each in begins]
    for place, rows, columns in found:
        first, length = ids[place], rows * columns
        if list(ids[place : place + length]) != list(range(first, first + length)):
            raise GenerationError(f"the ids have only a part of the image that begins with {first}")
    return found


def _positions(length: int, images: Sequence[tuple[int, int, int]]) -> tuple[torch.Tensor, int]:
    """Return the positions ``[3, length]`` of a prompt, and the number by which they are raised."""
    positions = torch.empty(3, length, dtype=torch.int64)
    shift = sum(rows * columns - max(rows, columns) for _, rows, columns in images)
    index, saved = 0, 0
    for first, rows, columns in images:
        positions[:, index:first] = torch.arange(index, first) + shift - saved
        begin, count = first + shift - saved, rows * columns
        square = torch.arange(count)
        positions[:, first : first + count] = begin + torch.stack((0 * square, square // columns, square % columns))
        index, saved = first + count, saved + count - max(rows, columns)
    positions[:, index:] = torch.arange(index, length) + shift - saved
    return positions, shift
