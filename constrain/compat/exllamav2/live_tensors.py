"""Lists of live tensors, to find memory leaks."""

from __future__ import annotations

import gc
from collections import Counter

import torch

Kind = tuple[str, str, tuple[int, ...]]

_snapshot: Counter[Kind] = Counter()


def list_live_tensors() -> None:
    """Print the live tensors, by device, dtype and shape."""
    _print(_live())


def set_snapshot() -> None:
    """Store the live tensors."""
    _snapshot.clear()
    _snapshot.update(_live())


def diff_snapshot() -> None:
    """Print the tensors created and freed since :func:`set_snapshot`."""
    live = _live()
    print("new:")
    _print(live - _snapshot)
    print("gone:")
    _print(_snapshot - live)


def _live() -> Counter[Kind]:
    gc.collect()
    # Not isinstance, which reads __class__ of the object, and that has side effects for lazy proxies.
    tensors = (thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))
    return Counter((str(tensor.device), str(tensor.dtype), tuple(tensor.shape)) for tensor in tensors)


def _print(tensors: Counter[Kind]) -> None:
    for (device, dtype, shape), count in sorted(tensors.items()):
        print(f"{count} x {dtype} {list(shape)} on {device}")
