"""Risk and coverage, and what there is to say of few values."""

from __future__ import annotations

import numpy as np
import pytest

from constrain.evaluation import Reliability


def test_values_of_the_same_probability_are_accepted_together() -> None:
    reliability = Reliability.of([0.5, 0.9, 0.5, 0.5], [True, True, False, True])
    assert reliability is not None
    points = [(point.probability, point.coverage, point.risk) for point in reliability.risk_coverage]
    assert points == [(0.9, 0.25, 0.0), (0.5, 1.0, 0.25)]


@pytest.mark.seeds(5)
def test_points_are_few_and_on_the_curve(seed: int) -> None:
    random = np.random.default_rng(seed)
    probabilities, right = random.random(5000).round(3), random.random(5000) < 0.8
    reliability = Reliability.of(probabilities.tolist(), right.tolist())
    assert reliability is not None and 90 <= len(reliability.risk_coverage) <= 100
    for point in reliability.risk_coverage:
        accepted = probabilities >= point.probability
        assert point.coverage == pytest.approx(accepted.mean())
        assert point.risk == pytest.approx((~right[accepted]).mean())
    assert reliability.risk_coverage[-1].coverage == 1


def test_probability_one_is_in_the_last_bin() -> None:
    reliability = Reliability.of([1.0, 0.0], [True, True])
    assert reliability is not None
    assert [(each.low, each.high, each.count) for each in reliability.bins] == [(0.0, 0.1, 1), (0.9, 1.0, 1)]
    assert (reliability.auroc, reliability.calibration_error) == (None, 0.5)


def test_nothing() -> None:
    assert Reliability.of([], []) is None
