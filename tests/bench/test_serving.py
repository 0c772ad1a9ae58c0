"""The benchmark of the server runs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import constrain
from constrain.bench.serving import measure_serving, random_llm
from constrain.bench.shapes import Shape
from constrain.cli.bench import bench


def test_rates_are_measured_in_turns(tiny_dir: Path) -> None:
    figures = measure_serving(constrain.load(tiny_dir, max_batch_size=4), streams=2, requests=3, tokens=8, repeats=2)
    assert len(figures["ratios"]) == 2
    assert figures["rate"] > 0 and figures["plain"] > 0


def test_weights_may_be_random(tiny_shape: Shape, tiny_dir: Path) -> None:
    llm = random_llm(tiny_shape, tiny_dir, streams=2, tokens=8)
    assert measure_serving(llm, streams=2, requests=3, tokens=8, repeats=1)["rate"] > 0


def test_a_shape_needs_a_tokenizer() -> None:
    result = CliRunner().invoke(bench, ["serve", "--shape", "llama-3.2-1b"])
    assert result.exit_code == 2 and "--tokenizer" in result.output
