"""Batches of requests with a bounded number in progress, so that the inputs may be endless."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from constrain.arguments import refused
from constrain.completion.inputs import Inputs, ReadyInputs
from constrain.completion.pending import PendingResult
from constrain.completion.stream import submitted
from constrain.runtime import Runtime

T = TypeVar("T")
R = TypeVar("R")

#: Seconds between checks for requests that have timed out.
_POLL = 0.5
#: Number of inputs that are submitted between two steps, so that the runtime need not wait for all of them: while its
#: batch is not full, and afterwards.
_AT_ONCE, _AHEAD = 8, 1


@dataclass(frozen=True)
class Failure:
    """Returned in place of the result of an input that failed.

    Attributes:
        index: position of the input.
        error: the exception.
    """

    index: int
    error: Exception

    if not TYPE_CHECKING:  # type checkers are to report attributes that only results have

        def __getattr__(self, name: str) -> NoReturn:
            """Name the error where an attribute of a result is asked for, such as ``value``."""
            if name.startswith("__"):  # copy and pickle look for methods before there is an error
                raise AttributeError(name)
            reason = f"{type(self.error).__name__}: {self.error}"
            raise AttributeError(f"input {self.index} failed, so that it has no {name}; its error is {reason}")


@dataclass(frozen=True, eq=False)
class _Task(Generic[R]):
    """A request in progress, or the error that submitting it raised."""

    index: int
    pending: PendingResult[R] | Exception

    @property
    def done(self) -> bool:
        return isinstance(self.pending, Exception) or self.pending.done

    @property
    def is_waiting(self) -> bool:
        return not isinstance(self.pending, Exception) and self.pending.is_waiting

    def cancel(self) -> None:
        if not isinstance(self.pending, Exception):
            self.pending.cancel()

    def outcome(self) -> R | Failure:
        try:
            return _raised(self.pending).result()
        except Exception as error:  # one failed input must not end the others
            return Failure(self.index, error)

    async def aoutcome(self) -> R | Failure:
        try:
            return await _raised(self.pending).aresult()
        except Exception as error:
            return Failure(self.index, error)


def _raised(pending: PendingResult[R] | Exception) -> PendingResult[R]:
    if isinstance(pending, Exception):
        raise pending
    return pending


def window_of(runtime: Runtime) -> int:
    """Return the number of requests to keep in progress: a full batch that runs, and as many that wait."""
    return 2 * min(runtime.max_batch_size, len(runtime.allocator.pages))


def run_many(
    runtime: Runtime, submit: Callable[[int, T], PendingResult[R]], items: Iterable[T], *, ordered: bool = True
) -> Generator[R | Failure, None, None]:
    """Run many inputs; each is submitted as soon as a slot is free.

    Args:
        runtime: the runtime that the requests are submitted to.
        submit: submits an input, given its position.
        items: the inputs; read only as far ahead as needed. If reading them fails, the results of earlier inputs are
            yielded first. :class:`~constrain.completion.Inputs` need not be ready, and can stop early.
        ordered: whether results are yielded in the order of the inputs, or as they finish.

    Raises:
        ArgumentError: ``items`` is a single text or mapping, or not iterable.
    """
    _check_inputs(items)
    return _run_many(runtime, submit, items, ordered)


def _run_many(
    runtime: Runtime, submit: Callable[[int, T], PendingResult[R]], items: Iterable[T], ordered: bool
) -> Generator[R | Failure, None, None]:
    tasks: deque[_Task[R]] = deque()
    inputs = items if isinstance(items, Inputs) else ReadyInputs(items)
    numbered, broken, window = enumerate(inputs), None, window_of(runtime)
    is_open = True
    try:
        while is_open or tasks:
            if inputs.is_stopped():
                is_open = False
                _drop_waiting(tasks)
            for _ in range(_AT_ONCE if 2 * len(tasks) < window else _AHEAD):
                if not is_open or len(tasks) >= window or (tasks and not inputs.is_ready()):
                    break
                try:
                    index, item = next(numbered)
                except StopIteration:
                    is_open = False
                except Exception as error:
                    is_open, broken = False, error
                else:
                    tasks.append(_start(submit, index, item))
            wakes = _after_a_step(runtime, inputs) if is_open and len(tasks) < window else _never
            if tasks and (task := _next_done(runtime, tasks, ordered, wakes)) is not None:
                _step_ahead(runtime, tasks)
                yield task.outcome()
    finally:
        for task in tasks:
            task.cancel()
    if broken is not None:
        raise broken


def _never() -> bool:
    return False


def _after_a_step(runtime: Runtime, inputs: Inputs[Any]) -> Callable[[], bool]:
    """Return a function that says whether the runtime has stepped since, and an input is ready."""
    steps = runtime.num_steps
    return lambda: runtime.num_steps > steps and inputs.is_ready()


def _check_inputs(items: Any) -> None:
    is_single = isinstance(items, (str, bytes, Mapping))
    if is_single or not isinstance(items, (Iterable, AsyncIterable)):
        raise refused("the inputs", items, "a list, a generator, or something else to iterate over")


def _start(submit: Callable[[int, T], PendingResult[R]], index: int, item: T) -> _Task[R]:
    try:
        return _Task(index, submit(index, item))
    except Exception as error:
        return _Task(index, error)


def _drop_waiting(tasks: deque[_Task[R]]) -> None:
    """Cancel and remove the requests that have not started."""
    for task in [task for task in tasks if task.is_waiting]:
        task.cancel()
        tasks.remove(task)


def _next_done(runtime: Runtime, tasks: deque[_Task[R]], ordered: bool, wakes: Callable[[], bool]) -> _Task[R] | None:
    """Wait for the first task, or if not ordered, for any one, and pop it; ``None`` if ``wakes()`` is true earlier."""
    wanted = [tasks[0]] if ordered else list(tasks)
    while not any(task.done for task in wanted) and not wakes():
        runtime.run_until(lambda: any(task.done for task in wanted) or wakes(), _POLL)
    found = next((task for task in wanted if task.done), None)
    if found is not None:
        tasks.remove(found)
    return found


def _step_ahead(runtime: Runtime, tasks: Iterable[_Task[Any]]) -> None:
    """Step once if a task needs it, so that a GPU has a pass to run while the host reads the result of another."""
    steps = runtime.num_steps
    if runtime.runner.is_asynchronous and not all(task.done for task in tasks):
        with suppress(Exception):  # every task in progress has received it
            runtime.run_until(lambda: runtime.num_steps > steps, _POLL)


def arun_many(
    runtime: Runtime,
    submit: Callable[[int, T], PendingResult[R]],
    items: Iterable[T] | AsyncIterable[T],
    *,
    ordered: bool = True,
) -> AsyncGenerator[R | Failure, None]:
    """Run many inputs, for ``async for``; arguments as for :func:`run_many`, ``items`` may be an async iterable."""
    _check_inputs(items)
    return _arun_many(runtime, submit, items, ordered)


async def _arun_many(
    runtime: Runtime,
    submit: Callable[[int, T], PendingResult[R]],
    items: Iterable[T] | AsyncIterable[T],
    ordered: bool,
) -> AsyncGenerator[R | Failure, None]:
    tasks: deque[asyncio.Task[R | Failure]] = deque()
    places, changed = asyncio.Semaphore(window_of(runtime)), asyncio.Event()

    async def run(index: int, item: T) -> R | Failure:
        try:
            pending = await submitted(lambda: submit(index, item))
        except Exception as error:
            return Failure(index, error)
        return await _Task(index, pending).aoutcome()

    async def read() -> None:
        await places.acquire()
        async for index, item in _enumerated(items):
            tasks.append(asyncio.ensure_future(run(index, item)))
            tasks[-1].add_done_callback(lambda _: changed.set())
            await places.acquire()

    # A task of its own, since an input may be made of the results of others.
    reader = asyncio.ensure_future(read())
    reader.add_done_callback(lambda _: changed.set())
    try:
        while tasks or not reader.done():
            changed.clear()
            if (task := _popped(tasks, ordered)) is not None:
                places.release()
                yield task.result()
            else:
                await changed.wait()
    finally:
        for each in (reader, *tasks):
            each.cancel()
        await asyncio.gather(reader, *tasks, return_exceptions=True)
    await reader


def _popped(tasks: deque[asyncio.Task[R | Failure]], ordered: bool) -> asyncio.Task[R | Failure] | None:
    """Pop the first task if it is done, or if not ordered, the first that is; ``None`` if there is none."""
    wanted = list(tasks)[:1] if ordered else list(tasks)
    found = next((task for task in wanted if task.done()), None)
    if found is not None:
        tasks.remove(found)
    return found


def successes(results: Generator[R | Failure, None, None]) -> list[R]:
    """Return all results; if an input failed, raise its error, and cancel the others."""
    with closing(results):
        return [_success(each) for each in results]


async def asuccesses(results: AsyncGenerator[R | Failure, None]) -> list[R]:
    """Return all results; if an input failed, raise its error, and cancel the others."""
    async with aclosing(results):
        return [_success(each) async for each in results]


def _success(result: R | Failure) -> R:
    if isinstance(result, Failure):
        raise result.error
    return result


async def _enumerated(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[tuple[int, T]]:
    numbers = count()
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield next(numbers), item
    else:
        for number, item in enumerate(items):
            yield number, item
