"""Ratios of counts that may be zero."""

from __future__ import annotations


def ratio(part: float, whole: int) -> float | None:
    """Return ``part / whole``; ``None`` if ``whole`` is 0."""
    return part / whole if whole else None
