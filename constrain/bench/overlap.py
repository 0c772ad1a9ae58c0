"""When the model's passes run on the GPU, and when masks are made on the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from constrain.generator.pipeline import Pipeline
from constrain.model.decode import Decoder


class Watch:
    """Begin and end of passes, as events, and of masks, as seconds of the host."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self._origin = _event()
        self._origin.synchronize()
        self._start = time.perf_counter()
        self.started: float | None = None  # masks of this step, on other threads
        self.passes: list[tuple[Any, Any]] = []
        self.masks: list[tuple[float, float]] = []

    def steps(self) -> list[dict[str, list[float]]]:
        """Microseconds in which each step's pass ran and its masks were made, from the begin of the first pass."""
        torch.cuda.synchronize()
        ran = [[self._origin.elapsed_time(event) * 1e3 for event in each] for each in self.passes]
        made = [[(moment - self._start) * 1e6 for moment in each] for each in self.masks]
        first = ran[0][0] if ran else 0.0
        return [
            {"forward": [round(t - first) for t in forward], "masks": [round(t - first) for t in masks]}
            for forward, masks in zip(ran, made, strict=False)
        ]


@contextmanager
def watched() -> Iterator[Watch]:
    """Notes when passes and masks of decode steps begin and end."""
    watch = Watch()
    run, promise, constrain = Decoder.run, Pipeline._promise, Pipeline._constrain

    def watched_run(self: Decoder, *args: Any) -> Any:
        begin = _event()
        shape = run(self, *args)
        watch.passes.append((begin, _event()))
        return shape

    def watched_promise(self: Pipeline, *args: Any) -> None:
        watch.started = time.perf_counter()
        promise(self, *args)

    def watched_constrain(self: Pipeline, *args: Any) -> Any:
        begin, watch.started = watch.started or time.perf_counter(), None
        outcomes = constrain(self, *args)
        watch.masks.append((begin, time.perf_counter()))
        return outcomes

    Decoder.run = watched_run  # type: ignore[method-assign, assignment]
    Pipeline._promise = watched_promise  # type: ignore[method-assign, assignment]
    Pipeline._constrain = watched_constrain  # type: ignore[method-assign, assignment]
    try:
        yield watch
    finally:
        Decoder.run, Pipeline._promise, Pipeline._constrain = run, promise, constrain  # type: ignore[method-assign]


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
