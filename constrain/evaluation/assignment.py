"""Assignment: which items of two lists belong together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def best_assignment(weights: Matrix) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns of greatest total weight, each row and column in one pair at most.

    The method is that of shortest augmenting paths (Jonker and Volgenant 1987): rows are assigned one after another,
    each by the cheapest chain of changes to the rows before it. It takes O(rows² columns) steps.

    Args:
        weights: the weight of each pair, 0 or more, of shape (rows, columns).

    Returns:
        The pairs of a weight above 0, in the order of the rows.
    """
    if weights.shape[0] > weights.shape[1]:
        return sorted((row, column) for column, row in best_assignment(weights.T))
    rows, columns = weights.shape
    costs = -weights
    # Dual prices: costs[i, j] - row_prices[i] - column_prices[j] >= 0, and = 0 for assigned pairs.
    row_prices, column_prices = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)
    for row in range(rows):
        _assign(row, costs, row_prices, column_prices, row_of)
    pairs = sorted((int(row), column) for column, row in enumerate(row_of) if row >= 0)
    return [(row, column) for row, column in pairs if weights[row, column] > 0]


def _assign(row: int, costs: Matrix, row_prices: Matrix, column_prices: Matrix, row_of: npt.NDArray[np.intp]) -> None:
    """Assign a row by the shortest path from it to a free column (Dijkstra), and change the prices accordingly."""
    columns = costs.shape[1]
    distance, before = np.full(columns, np.inf), np.full(columns, -1)
    is_done = np.zeros(columns, dtype=np.bool_)
    current, last, length = row, -1, 0.0
    while True:
        path = length + costs[current] - row_prices[current] - column_prices
        shorter = ~is_done & (path < distance)
        distance[shorter], before[shorter] = path[shorter], last
        last = int(np.where(is_done, np.inf, distance).argmin())
        length = float(distance[last])
        if row_of[last] < 0:
            break
        is_done[last], current = True, int(row_of[last])
    gains = length - distance[is_done]
    row_prices[row_of[is_done]] += gains
    row_prices[row] += length
    column_prices[is_done] -= gains
    while last >= 0:  # hand the columns on along the path
        row_of[last], last = (row_of[before[last]] if before[last] >= 0 else row), int(before[last])
