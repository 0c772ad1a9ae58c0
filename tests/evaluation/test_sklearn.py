"""Scores agree with those of scikit-learn, for what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from constrain.evaluation import Reliability, evaluate
from constrain.evaluation.metrics import auroc

metrics = pytest.importorskip("sklearn.metrics")
MOODS = ["glad", "angry", "ängstlich", None]


def lines(values: list[Any]) -> list[dict[str, Any]]:
    return [{"key": str(n), "source": f"{n}.txt", "record": {"value": value}} for n, value in enumerate(values)]


@pytest.mark.seeds(5)
def test_precision_recall_and_f1_of_a_field(seed: int) -> None:
    random = np.random.default_rng(seed)
    gold, found = (random.choice(np.array(MOODS, dtype=object), 80).tolist() for _ in range(2))
    total = evaluate(lines(found), lines(gold)).total
    as_labels = ([str(value) for value in values] for values in (gold, found))
    expected = metrics.precision_recall_fscore_support(*as_labels, labels=MOODS[:3], average="micro")
    assert (total.precision, total.recall, total.f1) == pytest.approx(expected[:3])
    assert total.accuracy == pytest.approx(np.mean([one == other for one, other in zip(gold, found, strict=True)]))


@pytest.mark.seeds(5)
def test_precision_recall_and_f1_of_lists(seed: int) -> None:
    random = np.random.default_rng(seed)
    gold, found = (random.integers(0, 2, size=(40, 6)) for _ in range(2))
    as_lists = ([[f"tag {tag}" for tag in np.flatnonzero(row)] for row in rows] for rows in (found, gold))
    total = evaluate(*map(lines, as_lists)).total
    expected = metrics.precision_recall_fscore_support(gold, found, average="micro")
    assert (total.precision, total.recall, total.f1) == pytest.approx(expected[:3])


@pytest.mark.seeds(5)
@pytest.mark.parametrize("values", [MOODS, [True, False], [True, False, None]], ids=str)
def test_confusion(seed: int, values: list[Any]) -> None:
    random = np.random.default_rng(seed)
    gold, found = (random.choice(np.array(values, dtype=object), 60).tolist() for _ in range(2))
    confusion = evaluate(lines(found), lines(gold)).confusions["/value"]
    as_json = {None: "null", True: "true", False: "false"} | {mood: f'"{mood}"' for mood in MOODS if mood}
    labels = [[as_json[value] for value in each] for each in (gold, found)]
    assert confusion.counts == metrics.confusion_matrix(*labels, labels=confusion.values).tolist()


@pytest.mark.seeds(5)
def test_area_under_the_roc_curve(seed: int) -> None:
    random = np.random.default_rng(seed)
    scores, right = random.integers(0, 20, 200) / 20, random.random(200) < 0.7
    assert auroc(scores.tolist(), right.tolist()) == pytest.approx(metrics.roc_auc_score(right, scores))


@pytest.mark.seeds(5)
def test_the_reliability_diagram(seed: int) -> None:
    from sklearn.calibration import calibration_curve

    random = np.random.default_rng(seed)
    probabilities = random.random(300)
    right = random.random(300) < probabilities**2
    reliability = Reliability.of(probabilities.tolist(), right.tolist())
    assert reliability is not None
    shares, means = calibration_curve(right, probabilities, n_bins=10)
    assert [each.right for each in reliability.bins] == pytest.approx(shares.tolist())
    assert [each.mean_probability for each in reliability.bins] == pytest.approx(means.tolist())
    counts = np.array([each.count for each in reliability.bins])
    assert reliability.calibration_error == pytest.approx(np.sum(counts * np.abs(shares - means)) / 300)
