"""Spans of the quotes of a record in the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from constrain.engine.pointers import pointer
from constrain.engine.words import word_borders
from constrain.extract.evidence import Path, Quotation
from constrain.extract.extraction import Span

#: Distance in characters, about a paragraph, that is added where an item of a list does not stand after the one before.
STEP_BACK = 500

Floats: TypeAlias = npt.NDArray[np.float64]


def locate(quotations: Sequence[Quotation], text: str) -> tuple[dict[str, Span], dict[str, list[Span]]]:
    """Return the spans of quotes in a text, and the occurrences of those that occur several times.

    The spans of quotes that occur several times are those of least total distance. The distance between two quotes that
    follow one another in the record is that of their middles in the text. Where they belong to different items of one
    list, and the later one does not stand after the earlier one, ``STEP_BACK`` is added.

    Args:
        quotations: the quotes, in the order of the record; those that do not occur in the text are left out.
        text: the text of the document.

    Returns:
        The spans, and all occurrences of quotes that occur several times, by the JSON pointers of the quotes.
    """
    if not quotations:
        return {}, {}
    found = _occurrences(quotations, text)
    placed = [each for each in quotations if found[each.text, each.whole_words].spans]
    places = [found[each.text, each.whole_words] for each in placed]
    steps_back = [STEP_BACK if _are_items(one.path, other.path) else 0 for one, other in pairwise(placed)]
    pointers = [pointer(each.path) for each in placed]
    chosen = _nearest([each.middles for each in places], steps_back)
    spans = {where: each.spans[index] for where, each, index in zip(pointers, places, chosen, strict=True)}
    several = {where: each.spans for where, each in zip(pointers, places, strict=True) if len(each.spans) > 1}
    return spans, several


class _Occurrences(NamedTuple):
    """All occurrences of a quote, in order, and the positions of their middles."""

    spans: list[Span]
    middles: Floats


def _occurrences(quotations: Sequence[Quotation], text: str) -> dict[tuple[str, bool], _Occurrences]:
    """Return the occurrences of each quote, by its text and whether it consists of whole words."""
    asked = {(each.text, each.whole_words) for each in quotations}
    borders = word_borders(text) if any(whole_words for _, whole_words in asked) else b""
    found: dict[tuple[str, bool], _Occurrences] = {}
    for quote, whole_words in asked:
        spans = [span for span in _find(quote, text) if not whole_words or (borders[span.start] and borders[span.end])]
        starts = np.fromiter((span.start for span in spans), np.float64, len(spans))
        found[quote, whole_words] = _Occurrences(spans, starts + len(quote) / 2)
    return found


def _find(quote: str, text: str) -> Iterator[Span]:
    at = text.find(quote) if quote else -1
    while at >= 0:
        yield Span(at, at + len(quote))
        at = text.find(quote, at + 1)


def _are_items(one: Path, other: Path) -> bool:
    """Whether two values belong to different items of the same list."""
    steps = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), None)
    return steps is not None and isinstance(steps[0], int)


def _nearest(places: Sequence[Floats], steps_back: Sequence[float]) -> list[int]:
    """Choose a position from each of several lists, so that the total distance of neighbours is least.

    This is the Viterbi algorithm: ``costs[i][j]`` is the least total distance up to position j of list i.

    Args:
        places: positions, each list in ascending order.
        steps_back: added to the distance of lists i and i + 1 if the later position is not after the earlier one.

    Returns:
        The index in each list.
    """
    if not places:
        return []
    costs = [np.zeros(len(places[0]))]
    for (here, there), step_back in zip(pairwise(places), steps_back, strict=True):
        costs.append(_costs(costs[-1], here, there, step_back))
    chosen = [int(np.argmin(costs[-1]))]
    for index in range(len(places) - 2, -1, -1):
        here, there = places[index], places[index + 1][chosen[-1]]
        distances = np.abs(here - there) + steps_back[index] * (here >= there)
        chosen.append(int(np.argmin(costs[index] + distances)))
    return chosen[::-1]


def _costs(costs: Floats, here: Floats, there: Floats, step_back: float) -> Floats:
    """Return the least costs of the places ``there``, given those of the places ``here``; both are ascending."""
    infinity = np.array([np.inf])
    ahead = np.minimum.accumulate(np.concatenate([infinity, costs - here]))
    back = np.minimum.accumulate(np.concatenate([costs + here, infinity])[::-1])[::-1]
    first_back = np.searchsorted(here, there)
    return np.minimum(ahead[first_back] + there, back[first_back] - there + step_back)
