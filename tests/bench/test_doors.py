"""The benchmark of all doors, on models that are tiny: that every door opens, not how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from constrain.bench import doors
from constrain.bench.shapes import Shape

SIZES: dict[str, Any] = {"prompt": 6, "new_tokens": 6, "forced_tokens": 12, "documents": 3, "record_tokens": 640}


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("gc.freeze", lambda: None)


def check(figures: dict[str, Any]) -> None:
    for each in figures["doors"]:
        assert "error" not in each, each
        assert each["rate"] > 0 and each["plain"] > 0 and each["ratio"] == each["rate"] / each["plain"]
        assert len(each["rates"]) == len(each["plain_rates"]) == figures["repeats"]


def test_every_door_opens(tiny_shape: Shape, tiny_dir: Path) -> None:
    (*_, figures) = doors.measure_random(tiny_shape, tiny_shape, tiny_dir, batches=(1, 2), repeats=1, **SIZES)
    print(
        *[(e["name"], e["batch"], round(e.get("ratio", 0), 2), e.get("error", "")) for e in figures["doors"]], sep="\n"
    )
    check(figures)
    print([(each["name"], each["batch"], round(each["ratio"], 2)) for each in figures["doors"]])
