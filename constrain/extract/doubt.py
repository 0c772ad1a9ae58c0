"""Values that become null because null is nearly as probable.

A model that writes the likeliest tokens begins a value as soon as all values together are likelier than null. Here the
value that it wrote is compared with null. To ask for ``margin`` times the probability of null costs least where an
invented value does as much harm as ``margin`` values that were missed (Elkan 2001, The Foundations of Cost-Sensitive
Learning), or where a model is that much too sure of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constrain.extract.confidence import LeafConfidence

_NULL = "null"


def with_nulls(text: str, leaves: Sequence[LeafConfidence], margin: float) -> tuple[str, list[LeafConfidence]]:
    """Replace values that are less than ``margin`` times as probable as null, where null is allowed.

    Args:
        text: a record as JSON.
        leaves: its leaves, in order.
        margin: the factor; 0 for no changes.

    Returns:
        The text, and its leaves. The schema may refuse a null beside other values of the record.
    """
    if not margin:
        return text, list(leaves)
    decided = [_or_null(leaf, margin) for leaf in leaves]
    record, pieces, end = text.encode(), [], 0
    for before, after in zip(leaves, decided, strict=True):
        if after is not before:
            pieces += [record[end : before.start], _NULL.encode()]
            end = before.end
    return b"".join([*pieces, record[end:]]).decode(), decided


def _or_null(leaf: LeafConfidence, margin: float) -> LeafConfidence:
    confidence = leaf.confidence
    null = (confidence.alternatives or {}).get(_NULL, 0.0)
    if leaf.text == _NULL or confidence.probability >= margin * null:
        return leaf
    return replace(leaf, text=_NULL, probability=null)
