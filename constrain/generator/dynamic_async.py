"""The dynamic generator for asyncio: one task runs all jobs, and each job is an async iterator of its results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from constrain.errors import GenerationError
from constrain.generator.dynamic import ExLlamaV2DynamicGenerator
from constrain.generator.job import ExLlamaV2DynamicJob

Results = asyncio.Queue["dict[str, Any] | Exception | None"]


class ExLlamaV2DynamicGeneratorAsync:
    """Runs the jobs of a dynamic generator in a task of the event loop. Must be used from that loop only.

    A job that the program no longer refers to is cancelled, since nobody can read its results.

    Attributes:
        generator: the wrapped generator.
        jobs: unfinished jobs, keyed by the job of the wrapped generator, as long as the program refers to them.
        iteration_task: the task.
    """

    #: Class of the generator.
    generator_type: type[ExLlamaV2DynamicGenerator] = ExLlamaV2DynamicGenerator

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a generator with the arguments of :class:`ExLlamaV2DynamicGenerator`, and start the task.

        Raises:
            RuntimeError: no event loop is running.
            GenerationError: the arguments contradict each other.
        """
        loop = asyncio.get_running_loop()
        self.generator = self.generator_type(*args, **kwargs)
        self.jobs: WeakValueDictionary[ExLlamaV2DynamicJob, ExLlamaV2DynamicJobAsync] = WeakValueDictionary()
        self._wake = asyncio.Event()
        self._closed = False
        self.iteration_task = loop.create_task(self._run())

    def enqueue(self, job: ExLlamaV2DynamicJobAsync) -> None:
        """Add a job to the queue; the constructor of the job calls this.

        Raises:
            GenerationError: the job can never fit in the cache, or the generator is closed.
        """
        if self._closed:
            raise GenerationError("the generator is closed")
        self.generator.enqueue(job.job)
        self.jobs[job.job] = job
        self._wake.set()

    async def cancel(self, job: ExLlamaV2DynamicJobAsync) -> None:
        """Cancel a job; iteration over its results ends.

        Raises:
            GenerationError: the job is done, or was cancelled before.
        """
        if self.jobs.pop(job.job, None) is None:
            raise GenerationError("the job is not running: it is done, or was cancelled before")
        self.generator.cancel(job.job)
        job.queue.put_nowait(None)

    async def close(self) -> None:
        """Stop the task, and cancel all jobs."""
        self._closed = True
        self._wake.set()
        await self.iteration_task
        for job in list(self.jobs.values()):
            await job.cancel()
        self.generator.clear_queue()  # jobs that the program no longer refers to

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if self._closed:
                return
            self._cancel_dropped()
            if not self.generator.num_remaining_jobs():
                self._wake.clear()
                continue
            try:
                results = self.generator.iterate()
            except Exception as error:
                self._fail(error)
                return
            for result in results:
                self._deliver(result)
            # Let the consumers of the results run.
            await asyncio.sleep(0)

    def _cancel_dropped(self) -> None:
        """Cancel jobs that the program no longer refers to."""
        if self.generator.num_remaining_jobs() > len(self.jobs):
            for job in self.generator.unfinished_jobs:
                if job not in self.jobs:
                    self.generator.cancel(job)

    def _deliver(self, result: dict[str, Any]) -> None:
        job = self.jobs.get(result["job"])
        if job is None:
            return
        job.queue.put_nowait(result)
        if result["eos"]:
            del self.jobs[result["job"]]

    def _fail(self, error: Exception) -> None:
        """Close the generator after an error of its own, and raise that error in the consumer of every job."""
        self._closed = True
        for job in list(self.jobs.values()):
            job.queue.put_nowait(error)
        self.jobs.clear()
        self.generator.clear_queue()


class ExLlamaV2DynamicJobAsync:
    """A job of an asynchronous generator: ``async for`` yields its results until the output is complete.

    After a ``break`` it goes on, and can be iterated further, as long as the program refers to it. If a task is
    cancelled that waits for a result, so is the job.

    Attributes:
        generator: the generator.
        job: the wrapped job.
        queue: unread results.
        cancelled: whether it was cancelled.
    """

    def __init__(self, generator: ExLlamaV2DynamicGeneratorAsync, *args: Any, **kwargs: Any) -> None:
        """Create a job with the arguments of :class:`ExLlamaV2DynamicJob`, and enqueue it.

        Raises:
            GenerationError: the arguments contradict each other, or the job can never fit in the cache.
        """
        self.generator = generator
        self.job = generator.generator.job_type(*args, **kwargs)
        self.queue: Results = asyncio.Queue()
        self.cancelled = self._done = False
        generator.enqueue(self)

    async def cancel(self) -> None:
        """Cancel the job; iteration over its results ends.

        Raises:
            GenerationError: it is done, or was cancelled before.
        """
        await self.generator.cancel(self)
        self.cancelled = True

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while not self._done and not self.cancelled:
            try:
                result = await self.queue.get()
            except asyncio.CancelledError:
                with suppress(GenerationError):  # it may be done
                    await self.cancel()
                raise
            self._done = not isinstance(result, dict) or result["eos"]
            if isinstance(result, Exception):
                raise result
            if result is not None:
                yield result
