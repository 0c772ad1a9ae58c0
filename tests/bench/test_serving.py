"""The benchmark of the server runs."""

from pathlib import Path

import constrain
from constrain.bench.serving import measure_serving


def test_rates_are_measured_in_turns(tiny_dir: Path) -> None:
    figures = measure_serving(constrain.load(tiny_dir, max_batch_size=4), streams=2, requests=3, tokens=8, repeats=2)
    assert len(figures["ratios"]) == 2
    assert figures["rate"] > 0 and figures["plain"] > 0
