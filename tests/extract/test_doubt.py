"""Values that become null because null is nearly as probable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import constrain
from constrain import LLM
from constrain.extract import Calibration, Extraction
from constrain.extract.calibration import FILE_NAME
from constrain.runs import LazyModel

SCHEMA = {
    "type": "object",
    "properties": {
        "open": {"type": "boolean"},
        "state": {"enum": ["on", "off", None]},
        "age": {"type": ["integer", "null"], "maximum": 99999},
        "né": {"type": ["string", "null"], "maxLength": 4},
        "tags": {"type": "array", "items": {"type": ["boolean", "null"]}, "minItems": 2, "maxItems": 2},
    },
    "required": ["open", "state", "age", "né", "tags"],
    "additionalProperties": False,
}
#: Either both are null, or none.
TOGETHER = {
    "anyOf": [
        {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
        {"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}},
    ],
    "type": "object",
    "properties": {"a": {}, "b": {}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TEXTS = ["hello there", "yes, please; no, thanks", "the door", "nobody knows", "1 2 3", "Ada"]


@pytest.fixture(scope="module")
def raw(tiny_dir: Path) -> LLM:
    return constrain.load(tiny_dir)


def with_margin(tiny_dir: Path, margin: float) -> LLM:
    return constrain.load(tiny_dir, calibration=Calibration(null_margin=margin))


def odds(found: Extraction[Any]) -> dict[str, float]:
    """Return how many times as probable as null the values are where null is allowed."""
    allowed = {where: each for where, each in found.confidence.items() if "null" in (each.alternatives or {})}
    return {where: each.probability / each.alternatives["null"] for where, each in allowed.items()}


def test_values_below_the_margin_become_null(tiny_dir: Path, raw: LLM) -> None:
    before = [raw.extract(SCHEMA, text) for text in TEXTS]
    ratios = sorted(ratio for each in before for ratio in odds(each).values() if ratio > 1)
    margin = ratios[len(ratios) // 2]
    after = [with_margin(tiny_dir, margin).extract(SCHEMA, text) for text in TEXTS]
    for one, other in zip(before, after, strict=True):
        doubted = {where for where, ratio in odds(one).items() if ratio < margin * (1 - 1e-6)}
        for where, confidence in other.confidence.items():
            known = one.confidence[where]
            if where in doubted:
                assert confidence.alternatives is not None
                assert confidence.probability == pytest.approx(confidence.alternatives["null"])
            else:
                assert confidence.probability == pytest.approx(known.probability, abs=1e-6)
        assert json.loads(other.text) == other.json == other.value
        assert other.tokens == one.tokens
    assert any(one.json != other.json for one, other in zip(before, after, strict=True))


def test_all_that_may_be_null_is_null_if_the_margin_is_large(tiny_dir: Path) -> None:
    found = with_margin(tiny_dir, 1e12).extract(SCHEMA, TEXTS[0])
    known = {where for where, each in found.confidence.items() if "null" in (each.alternatives or {})}
    assert {"/age", "/né", "/tags/1"} <= known
    assert isinstance(found.json["open"], bool)
    assert found.json["age"] is found.json["né"] is found.json["tags"][1] is None


def test_a_value_that_becomes_null_has_no_evidence(tiny_dir: Path, raw: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": ["boolean", "null"], "x-evidence": True} for name in ("here", "there")},
        "required": ["here", "there"],
    }
    found, nulls = (llm.extract(schema, "yes, please; no, thanks") for llm in (raw, with_margin(tiny_dir, 1e12)))
    assert set(found.spans) == {"/here", "/there"}
    assert nulls.json == {"here": None, "there": None}
    written_null = {f"/{name}" for name, value in found.json.items() if value is None}
    assert set(nulls.spans) == written_null != set(found.spans)


def test_the_schema_may_refuse_a_null_beside_other_values(tiny_dir: Path, raw: LLM) -> None:
    llm, refused = with_margin(tiny_dir, 1e12), 0
    for text in TEXTS:
        before, after = raw.extract(TOGETHER, text), llm.extract(TOGETHER, text)
        assert (after.json, after.text) == (before.json, before.text)
        refused += after.json["a"] is not None
    assert refused


def test_records_are_the_same_where_confidence_is_not_asked_for(tiny_dir: Path) -> None:
    llm = with_margin(tiny_dir, 1e12)
    hidden = llm.extract(SCHEMA, TEXTS[0], confidence=False)
    assert hidden.json == llm.extract(SCHEMA, TEXTS[0]).json
    assert hidden.confidence == {}
    exact = llm.extract(SCHEMA, TEXTS[0], confidence="exact")
    assert exact.json["state"] is exact.json["age"] is None


def test_streams_end_with_the_same_record(tiny_dir: Path) -> None:
    llm = with_margin(tiny_dir, 1e12)
    *_, last = llm.extract_stream(SCHEMA, TEXTS[0])
    assert last.json == llm.extract(SCHEMA, TEXTS[0]).json


def test_a_calibration_in_the_folder_of_a_model_holds_unless_another_is_given(tiny_dir: Path, tmp_path: Path) -> None:
    for path in tiny_dir.iterdir():
        (tmp_path / path.name).symlink_to(path)
    Calibration(null_margin=3.0).save(tmp_path / FILE_NAME)
    assert constrain.load(tmp_path).extractor.calibration == Calibration(null_margin=3.0)
    assert LazyModel.open(tmp_path, dict).calibration == Calibration(null_margin=3.0)
    assert constrain.load(tmp_path, calibration=Calibration()).extractor.calibration == Calibration(null_margin=3.0)
    other = Calibration(null_margin=0)
    assert constrain.load(tmp_path, calibration=other).extractor.calibration == other
    assert constrain.load(tiny_dir).extractor.calibration is None
