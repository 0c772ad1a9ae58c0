"""Ratios of counts, of which there may be none."""

from __future__ import annotations


def ratio(part: float, whole: int) -> float | None:
    """Return ``part / whole``; ``None`` if ``whole`` is 0."""
    return part / whole if whole else None
