"""Measures of confidence: of values extracted by the built-in model, and as a report."""

from __future__ import annotations

import math

import constrain
from constrain.demo.confidence import Document, Value, report, values
from constrain.extract.calibration import Sample

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "free": {"type": "boolean"}},
    "required": ["city", "free"],
    "additionalProperties": False,
}


def test_values_of_a_record() -> None:
    llm = constrain.load()
    document = Document("The choir sings in Lyon. Admission is free.", SCHEMA, {"city": "Lyon", "free": True})
    (found,) = values(llm, [document])
    assert [value.sample.kind for value in found] == ["string", "boolean"]
    assert all(0 < value.sample.probability <= 1 and value.mean_logprob <= 0 for value in found)
    extraction = llm.extract(SCHEMA, document.text)
    assert [value.sample.is_right for value in found] == [
        extraction.json[name] == right for name, right in document.record.items()
    ]


def test_report() -> None:
    """Half of the values of 0.9 are right; those of 0.1 never are."""
    found = [
        [Value(Sample("string", probability, right and number % 4 < 2), math.log(0.5)) for right in (True, False)]
        for number in range(80)
        for probability in [0.9 if number % 4 < 2 else 0.1]
    ]
    lines = list(report(found))
    assert lines[0] == "160 values of 80 documents, 25.0% right"
    assert lines[1] == "AUROC of the mean log probability: 0.500"
    assert lines[2] == "AUROC of the confidence: 0.833, calibrated 0.833"
    assert lines[3].startswith("expected calibration error: 0.250, calibrated 0.0")
