"""Tracing of when forward passes run on the GPU and when masks are computed on the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from constrain.runtime.decode_loop import DecodeLoop
from constrain.runtime.mask_batch import MaskBatch
from constrain.runtime.model_runner import ModelRunner


class Watch:
    """Start and end of forward passes, as CUDA events, and of mask computations, in host seconds."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self._origin = _event()
        self._origin.synchronize()
        self._start = time.perf_counter()
        self.started: float | None = None  # when the first mask of this step was requested
        self.passes: list[tuple[Any, Any]] = []
        self.masks: list[tuple[float, float]] = []

    def steps(self) -> list[dict[str, list[float]]]:
        """Return each step's forward and mask intervals, in microseconds since the start of the first pass."""
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
    """Record when the forward passes and masks of decode steps start and end."""
    watch = Watch()
    decode, add, await_masks = ModelRunner.decode, MaskBatch.add, DecodeLoop._await_masks

    def watched_decode(self: ModelRunner, *args: Any) -> Any:
        begin = _event()
        output = decode(self, *args)
        watch.passes.append((begin, _event()))
        return output

    def watched_add(self: MaskBatch, *args: Any) -> Any:
        watch.started = watch.started or time.perf_counter()
        return add(self, *args)

    def watched_await_masks(self: DecodeLoop, *args: Any) -> Any:
        started = watch.started or time.perf_counter()
        events = await_masks(self, *args)
        watch.masks.append((started, time.perf_counter()))
        watch.started = None
        return events

    _patch(watched_decode, watched_add, watched_await_masks)
    try:
        yield watch
    finally:
        _patch(decode, add, await_masks)


def _patch(decode: Any, add: Any, await_masks: Any) -> None:
    for owner, name, method in (
        (ModelRunner, "decode", decode),
        (MaskBatch, "add", add),
        (DecodeLoop, "_await_masks", await_masks),
    ):
        setattr(owner, name, method)


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
