"""Losses of the built-in model by conversion, on documents that it was neither trained nor calibrated with."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path

import pytest

from constrain.demo import model_dir
from constrain.demo.synth import Split, example
from constrain.extract import build_prompt
from constrain.quantization import Text, evaluate_model, quantize

#: Characters of a prompt and its record, at most.
SHORT = 1200


def documents(split: Split, number: int) -> list[Text]:
    """Short documents with their records, of which the records count, as in training."""
    examples = (example(3, split, index) for index in count())
    texts = (Text(each.answer, prompt=build_prompt(each.schema, each.text)) for each in examples)
    return list(islice((text for text in texts if len(text.prompt) + len(text.text) < SHORT), number))


@pytest.mark.parametrize(
    ("bits", "calibrated", "loss", "divergence", "top1"), [(8, 0, 0.001, 1e-4, 0.995), (4, 8, 0.04, 0.02, 0.98)]
)
def test_perplexity(tmp_path: Path, bits: int, calibrated: int, loss: float, divergence: float, top1: float) -> None:
    """At 8 bits within 0.1%, at 4 bits within 4%."""
    texts = documents(Split.TRAIN, calibrated)
    quantized = quantize(model_dir(), tmp_path / "out", bits=bits, calibration=texts or None)
    found = evaluate_model(tmp_path / "out", documents(Split.WORDINGS, 20), against=model_dir())
    assert quantized.group_size == 64 and found.tokens > 500 and found.divergence is not None
    assert abs(found.perplexity / found.divergence.perplexity - 1) < loss
    assert found.divergence.mean < divergence and found.divergence.top1 > top1
