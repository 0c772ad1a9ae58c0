"""Calibrations: curves of the fewest errors that rise, on values that are known to be right or wrong."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from constrain.errors import ArgumentError
from constrain.evaluation.metrics import auroc, expected_calibration_error
from constrain.extract import Calibration, Confidence
from constrain.extract.calibration import OTHERS, Sample, value_kind
from constrain.extract.curves import Isotonic, Logistic, pooled
from constrain.extract.extraction import PRESENT


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def samples(count: int, seed: int) -> list[Sample]:
    """Values of a model that is much too sure of itself, in another way for each kind."""
    random = np.random.default_rng(seed)
    found = []
    for kind, slope, offset in (("string", 0.3, 0.2), ("number", 0.5, -0.5), ("quote", 0.8, -2.0)):
        logits = random.normal(3, 3, count)
        right = random.random(count) < sigmoid(slope * logits + offset)
        found += [Sample(kind, float(sigmoid(x)), bool(each)) for x, each in zip(logits, right, strict=True)]
    return found


@pytest.mark.parametrize("count", [150, 1500])
def test_probabilities_become_shares(count: int) -> None:
    """On one half of the values it is fitted; on the other half, the expected calibration error is at most 0.05."""
    calibration, held = Calibration.fit(samples(count, 1)), samples(count, 2)
    method = {150: "logistic", 1500: "isotonic"}[count]
    assert {curve.to_json()["method"] for kind, curve in calibration.curves.items() if kind != OTHERS} == {method}
    right = [sample.is_right for sample in held]
    before = [sample.probability for sample in held]
    after = [calibration.probability(sample.kind, sample.probability) for sample in held]
    assert expected_calibration_error(before, right) > 0.15 > 0.05 >= expected_calibration_error(after, right)
    assert auroc(after, right) > auroc(before, right), "kinds become comparable"


def test_few_values_of_a_kind_go_by_the_curve_of_all() -> None:
    known = [*samples(100, 1), *[Sample("enum", 0.9, True)] * 29]
    calibration = Calibration.fit(known)
    assert calibration.curves.keys() == {OTHERS, "string", "number", "quote"}
    assert calibration.probability("enum", 0.7) == calibration.probability("boolean", 0.7)
    with pytest.raises(ArgumentError, match="at least 30 values, not 29"):
        Calibration.fit(known[-29:])


def test_isotonic_regression() -> None:
    """The blocks are those of scikit-learn, ties included."""
    random = np.random.default_rng(0)
    given = np.sort(random.integers(0, 40, 300) / 40)
    values = (random.random(300) < given).astype(float)
    starts, sizes = pooled(given, values)
    means = np.repeat(np.add.reduceat(values, starts) / sizes, sizes)
    expected = IsotonicRegression().fit(given, values).predict(given)
    np.testing.assert_allclose(means, expected, atol=1e-12)


def test_an_isotonic_curve_never_falls_and_avoids_certainty() -> None:
    random = np.random.default_rng(1)
    given = random.random(500)
    curve = Isotonic.fit(given, (random.random(500) < given**3).astype(float))
    shares = [curve.apply(probability) for probability in np.linspace(0, 1, 101)]
    assert all(one <= other for one, other in pairwise(shares))
    assert 0 < shares[0] < 0.05 and 0.9 < shares[-1] < 1


def test_logistic_regression() -> None:
    """With many values the targets of Platt are all but 0 and 1, and the curve is that of scikit-learn."""
    random = np.random.default_rng(2)
    logits = random.normal(1, 2, 20_000)
    right = (random.random(20_000) < sigmoid(0.6 * logits - 0.4)).astype(float)
    curve = Logistic.fit(sigmoid(logits), right)
    expected = LogisticRegression(C=np.inf).fit(logits[:, None], right)
    assert curve.slope == pytest.approx(expected.coef_[0, 0], rel=1e-2)
    assert curve.offset == pytest.approx(expected.intercept_[0], rel=1e-2)


@pytest.mark.parametrize(
    ("probabilities", "right"),
    [([0.5] * 40, [True] * 40), ([0.0, 1.0] * 20, [True, False] * 20), ([1.0] * 40, [True, False] * 20)],
)
def test_values_that_say_little(probabilities: list[float], right: list[bool]) -> None:
    """All right, the likelier ones less often right, or all equally likely: curves stay finite, and never fall."""
    for fit in (Logistic.fit, Isotonic.fit):
        curve = fit(np.array(probabilities), np.array(right, dtype=float))
        assert 0 < curve.apply(0.0) <= curve.apply(0.5) <= curve.apply(1.0) < 1
        assert curve.apply(max(probabilities)) == pytest.approx(sum(right) / 40, abs=0.05)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    calibration = Calibration.fit([*samples(300, 1), *samples(50, 1)[:50]])
    calibration.save(path)
    assert Calibration.load(path) == calibration == Calibration.of(path) == Calibration.of(calibration)
    assert Calibration.of(None) is None
    assert json.loads(path.read_text())["curves"].keys() == calibration.curves.keys()
    margin = Calibration(null_margin=2.5)
    margin.save(path)
    assert Calibration.load(path) == margin
    assert margin.probability("string", 0.3) == 0.3


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="null_margin"):
        Calibration(null_margin="4")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="curves"):
        Calibration(curves=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"curves": {}, "null_margin": "4"}',
        '{"curves": {"others": {"method": "magic"}}}',
        '{"curves": 1}',
    ],
)
def test_files_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(ArgumentError, match="the calibration cannot be read"):
        Calibration.load(path)
    path.write_text(content)
    with pytest.raises(ArgumentError, match=r"calibration\.json is no calibration"):
        Calibration.load(path)


def test_alternatives_share_the_rest() -> None:
    half = Calibration({OTHERS: Logistic(0.0, 0.0)})
    known = Confidence(0.6, 0.1, {'"a"': 0.6, '"b"': 0.3, '"c"': 0.1})
    found = half.calibrated(known, "enum", '"a"')
    assert found == Confidence(0.5, 0.1, {'"a"': 0.5, '"b"': pytest.approx(0.375), '"c"': pytest.approx(0.125)})
    certain = half.calibrated(Confidence(1.0, 0.0, {"true": 1.0, "false": 0.0}), "boolean", "true")
    assert certain.alternatives == {"true": 0.5, "false": 0.5}
    # That a value is present is not that it is right.
    present = Confidence(0.6, 0.0, {PRESENT: 0.9, "null": 0.1})
    assert half.calibrated(present, "string", '"Ada"') == Confidence(0.5, 0.0, present.alternatives)
    alone = half.calibrated(Confidence(0.9, 0.0, {"1": 1.0}), "enum", "1")
    assert math.isclose(sum(alone.alternatives.values()), 1.0)


def test_kinds() -> None:
    few, optional = {"1": 0.5, "2": 0.5}, {"null": 0.5, PRESENT: 0.5}
    cases: list[tuple[Any, Any, bool, str]] = [
        (None, optional, False, "absent"),
        ([], None, False, "absent"),
        ({}, None, False, "absent"),
        (True, few, False, "boolean"),
        (0, few, False, "enum"),
        ("x", few, False, "enum"),
        (0, None, False, "number"),
        (2.5, optional, False, "number"),
        ("x", optional, True, "quote"),
        ("x", None, False, "string"),
    ]
    assert [value_kind(*case[:3]) for case in cases] == [case[3] for case in cases]
