"""The benchmark of confidence compares extraction with itself."""

from __future__ import annotations

import constrain
from constrain.bench.confidence import measure_confidence


def test_rates_with_and_without() -> None:
    figures = measure_confidence(constrain.load(), documents=2, repeats=1)
    assert figures["rate"] > 0 < figures["plain"] and figures["ratios"] == [figures["rate"] / figures["plain"]]
