"""Inputs of many requests that may take their time to come, and may end early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class Inputs(Protocol[T_co]):
    """Inputs of :func:`~constrain.completion.run_many` that can be asked whether to wait for the next one."""

    def __iter__(self) -> Iterator[T_co]:
        """Return an iterator over the inputs."""

    def is_ready(self) -> bool:
        """Return whether the next input, or the end, is there; if not, the requests in progress go on without it."""

    def is_stopped(self) -> bool:
        """Return whether to end: no more inputs are taken, and requests that have not started are cancelled."""


class ReadyInputs(Inputs[T]):
    """The inputs of an iterable, each of which is taken for ready."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def is_ready(self) -> bool:
        return True

    def is_stopped(self) -> bool:
        return False
