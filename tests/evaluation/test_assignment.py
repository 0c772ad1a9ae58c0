"""The best assignment, compared with all assignments."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from constrain.evaluation.assignment import best_assignment


def best_total(weights: np.ndarray) -> float:
    few, many = sorted(weights.shape)
    wide = weights if weights.shape == (few, many) else weights.T
    return max(float(wide[range(few), list(columns)].sum()) for columns in permutations(range(many), few))


@pytest.mark.seeds(300)
def test_no_assignment_has_a_greater_weight(seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = random.integers(0, 4, size=random.integers(0, 6, 2)).astype(np.float64)
    pairs = best_assignment(weights)
    rows, columns = [row for row, _ in pairs], [column for _, column in pairs]
    assert len(set(rows)) == len(set(columns)) == len(pairs) and rows == sorted(rows)
    assert all(weights[pair] > 0 for pair in pairs)
    assert sum(weights[pair] for pair in pairs) == best_total(weights)


def test_a_greedy_choice_is_taken_back() -> None:
    assert best_assignment(np.array([[3.0, 2.0], [2.0, 0.0]])) == [(0, 1), (1, 0)]


def test_equal_items_are_paired_in_order() -> None:
    assert best_assignment(np.ones((3, 3))) == [(0, 0), (1, 1), (2, 2)]
