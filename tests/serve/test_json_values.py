"""JSON that is read piece by piece."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from constrain.serve.errors import pointer
from constrain.serve.json_values import JSONReader


def random_value(rng: random.Random, depth: int = 3) -> Any:
    texts = ["", "a", 'q"', "\\", "ä\n", "}", "~/"]
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([None, True, False, rng.randint(-99, 99), rng.random(), rng.choice(texts)])
    if rng.random() < 0.5:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(texts): random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))}


def values(value: Any, *steps: str | int) -> dict[str, Any]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {pointer(*steps): value}
    for step, child in inner:
        found |= values(child, *steps, step)
    return found


@pytest.mark.seeds(100)
def test_every_value_is_found_and_the_end(seed: int) -> None:
    rng = random.Random(seed)
    value = random_value(rng)
    text = json.dumps(value, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)
    reader, step = JSONReader(), rng.choice([1, 2, 5, 1000])
    found = dict(each for start in range(0, len(text), step) for each in reader.feed(text[start : start + step]))
    found |= dict(reader.finish())
    assert found == values(value)
    assert reader.end == len(text)


def test_what_follows_a_document_is_left_alone() -> None:
    reader = JSONReader()
    assert reader.feed('{"a": [1]}} more') == [("/a/0", 1), ("/a", [1]), ("", {"a": [1]})]
    assert reader.end == 10
