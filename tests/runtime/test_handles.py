"""Handles: submitting, awaiting, cancelling and failing requests from several threads and event loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from constrain.errors import GenerationError
from constrain.runtime import Handle, Request, Runtime, SamplingParams
from constrain.runtime.fair_lock import FairLock
from constrain.runtime.outputs import Piece, SampledToken, Update
from constrain.runtime.sequence import SequenceState

GREEDY = SamplingParams()
RANDOM = SamplingParams(temperature=2.0, top_k=0)
Make = Callable[..., Runtime]


def asked(count: int = 8, seed: int = 0, **options: object) -> Request:
    prompt = [torch.tensor([[5, 6, 7 + seed]])]
    return Request(prompt, RANDOM, seed=seed, max_new_tokens=count, **options)  # type: ignore[arg-type]


def texts(runtime: Runtime, count: int, tokens: int = 8) -> list[str]:
    return [runtime.submit(asked(tokens, seed)).result().text for seed in range(count)]


def test_updates_come_as_they_are_made(make: Make) -> None:
    handle = make().submit(asked())
    updates = list(handle)
    assert len(updates) == 8 and all(update.finish is None for update in updates[:-1])
    assert "".join(update.released.text for update in updates) == handle.output.text == handle.result().text
    assert [token.id for update in updates for token in update.released.tokens] == [t.id for t in handle.output.tokens]
    assert handle.done and list(handle) == []


def test_updates_that_nobody_reads_are_joined(make: Make) -> None:
    """A finished output keeps few objects, which the garbage collector would go through."""
    handle = make().submit(asked(40, stop_strings=["zzz"]))
    output = handle.result()
    (update,) = handle
    assert update == Update(Piece(output.text, output.tokens), finish=output.finish)


def test_removed_text_is_read_once(make: Make) -> None:
    handle = make().submit(asked(40))
    first, second = SampledToken(1, 1.0), SampledToken(2, 1.0)
    handle.push(Update(Piece("a", [first]), suppressed=Piece("x", [second])))
    handle.push(Update(suppressed=Piece("y", [first])))
    updates = iter(handle)
    assert next(updates) == Update(Piece("a", [first]), suppressed=Piece("xy", [second, first]))
    handle.push(Update(Piece("b", [second])))
    assert next(updates) == Update(Piece("b", [second]))
    handle.cancel()


def test_threads_share_a_runtime(make: Make) -> None:
    """Requests of all threads run in the same batches, regardless of which thread calls ``step``."""
    expected = texts(make(), 12, 40)
    runtime = make(8192)
    most = 0
    step = runtime.step

    def watched() -> object:
        nonlocal most
        most = max(most, len(runtime.scheduler.running))
        return step()

    runtime.step = watched  # type: ignore[method-assign, assignment]
    gate = threading.Barrier(4)

    def work(first: int) -> list[str]:
        gate.wait(5)
        handles = [runtime.submit(asked(40, seed)) for seed in range(first, 12, 4)]
        return [handle.result(30).text for handle in handles]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert [found[seed % 4][seed // 4] for seed in range(12)] == expected
    assert most > 3 and not runtime.has_work
    assert not any(page.users for page in runtime.allocator.pages)


def test_submitting_does_not_wait_for_a_step(make: Make) -> None:
    runtime = make()
    with ThreadPoolExecutor(1) as pool, runtime.between_steps():
        handle = pool.submit(runtime.submit, asked(4)).result(10)
    assert len(handle.result(30).tokens) == 4


def test_an_error_of_a_step_ends_a_request_that_is_being_submitted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = make()
    add = runtime.scheduler.add

    def interrupted(sequence: SequenceState) -> None:
        for handle in runtime._handles.values():
            handle.fail(GenerationError("of the step"))
        runtime.cancel(sequence)
        add(sequence)

    monkeypatch.setattr(runtime.scheduler, "add", interrupted)
    handle = runtime.submit(asked(4))
    with pytest.raises(GenerationError, match="of the step"):
        handle.result(30)
    assert not runtime.has_work


def test_one_thread_submits_while_another_steps(make: Make) -> None:
    """A request does not wait for another thread's requests to finish."""
    runtime = make()
    started, long = threading.Event(), runtime.submit(asked(1500))

    def work() -> None:
        for _ in long:
            started.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert started.wait(10)
    assert runtime.submit(asked(4, 1)).result(10).text == texts(make(), 2, 4)[1]
    assert not long.done
    long.cancel()
    worker.join(10)
    assert not worker.is_alive()


def test_a_cancelled_request(make: Make) -> None:
    runtime = make()
    stays, goes, waits = (runtime.submit(asked(seed=seed)) for seed in range(3))
    runtime.step()
    goes.cancel()
    goes.cancel()
    assert goes.done and len(goes.output.tokens) == 1
    with pytest.raises(GenerationError, match="cancelled"):
        goes.result()
    assert len(list(goes)) == 1
    assert [handle.result().text for handle in (stays, waits)] == [texts(make(), 3)[n] for n in (0, 2)]
    assert not any(page.users for page in runtime.allocator.pages) and not runtime.has_work
    stays.cancel()
    assert stays.result().text


def test_a_request_cancelled_in_the_queue(make: Make) -> None:
    runtime = make(max_batch_size=1)
    first, second = (runtime.submit(asked(seed=seed)) for seed in range(2))
    runtime.step()
    second.cancel()
    assert list(second) == [] and first.result().text == texts(make(), 1)[0]


def test_a_sequence_that_is_cancelled_ends_its_handle(make: Make) -> None:
    runtime = make()
    handle = runtime.submit(asked(400))
    runtime.step()
    runtime.cancel(handle.sequence)
    assert handle.done and len(list(handle)) == 1
    with pytest.raises(GenerationError, match="cancelled"):
        handle.result()


def test_a_timeout_leaves_the_request_running(make: Make) -> None:
    handle = make().submit(asked(400))
    with pytest.raises(TimeoutError, match=r"within 0\.02 seconds"):
        handle.result(0.02)
    assert not handle.done and len(handle.result(30).tokens) == 400


def test_waiting_for_another_thread_times_out(make: Make) -> None:
    runtime = make()
    handle = runtime.submit(asked())
    start = time.monotonic()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with runtime.lock:
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(5)
    with pytest.raises(TimeoutError):
        handle.result(0.1)
    assert time.monotonic() - start < 5
    release.set()
    holder.join()
    assert handle.result(10).text


def broken(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(runtime.runner, "decode", fail)


def test_an_error_of_the_runtime_reaches_every_handle(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = make(max_batch_size=2)
    handles = [runtime.submit(asked(seed=seed)) for seed in range(3)]
    with monkeypatch.context() as context:
        broken(runtime, context)
        for handle in handles:
            with pytest.raises(ZeroDivisionError, match="broken"):
                handle.result()
            with pytest.raises(ZeroDivisionError, match="broken"):
                list(handle)
    assert not runtime.has_work and not any(page.users for page in runtime.allocator.pages)
    assert runtime.submit(asked()).result().text == texts(make(), 1)[0]


def test_awaiting_and_iterating_in_an_event_loop(make: Make) -> None:
    expected = texts(make(), 6)
    runtime = make()

    async def read(handle: Handle) -> str:
        return "".join([update.released.text async for update in handle])

    async def main() -> list[str]:
        handles = [runtime.submit(asked(seed=seed)) for seed in range(6)]
        outputs = await asyncio.gather(*handles[:3])
        return [output.text for output in outputs] + list(await asyncio.gather(*map(read, handles[3:])))

    assert asyncio.run(main()) == expected
    # The runtime works with a second event loop too.
    assert asyncio.run(main()) == expected


def test_those_that_no_longer_wait_are_forgotten(make: Make) -> None:
    handle = make().submit(asked(200))

    async def main() -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(handle.aresult(), 0.001)
            async with contextlib.aclosing(handle.aupdates()) as updates:
                await anext(updates)
        assert handle._listeners == []

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [1e-3, 1000.0])
def test_a_reader_that_rests_gets_all_the_same(make: Make, seconds: float) -> None:
    runtime = make()

    async def main() -> tuple[str, int]:
        updates = [update async for update in runtime.submit(asked(300)).aupdates(lambda: seconds)]
        return "".join(update.released.text for update in updates), len(updates)

    text, count = asyncio.run(main())
    assert text == make().submit(asked(300)).result().text
    assert (count > 2) == (seconds < 1), "it gets nothing while it rests"


def test_a_cancelled_request_in_an_event_loop(make: Make) -> None:
    runtime = make()

    async def main() -> int:
        handle, other = runtime.submit(asked(2000)), runtime.submit(asked())
        count = 0
        async for _ in handle:
            count += 1
            handle.cancel()
        with pytest.raises(GenerationError, match="cancelled"):
            await handle
        assert (await other).text
        return count

    assert 1 <= asyncio.run(main()) < 2000


def test_an_error_of_the_runtime_in_an_event_loop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = make()

    async def main() -> None:
        handles = [runtime.submit(asked(seed=seed)) for seed in range(2)]
        waiting = [*handles, _iterated(runtime.submit(asked(seed=2)))]
        found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        assert [type(each) for each in found] == [ZeroDivisionError] * 3

    with monkeypatch.context() as context:
        broken(runtime, context)
        asyncio.run(main())
    # The runtime still works in a new event loop.
    asyncio.run(asyncio.wait_for(_awaited(runtime), 10))


async def _iterated(handle: Handle) -> None:
    async for _ in handle:
        pass


async def _awaited(runtime: Runtime) -> None:
    assert (await runtime.submit(asked())).text


def test_a_thread_that_waits_goes_first() -> None:
    lock, order, waits = FairLock(), list[str](), threading.Event()

    def wait() -> None:
        waits.set()
        with lock:
            order.append("other")

    other = threading.Thread(target=wait)
    with lock, lock:
        other.start()
        waits.wait()
        while not lock._next.locked():  # until it waits
            pass
    with lock:
        order.append("again")
    other.join()
    assert order == ["other", "again"]


def test_a_lock_that_is_held_or_waited_for_is_not_taken_without_blocking() -> None:
    lock, free = FairLock(), list[bool]()
    with ThreadPoolExecutor(1) as threads:
        with lock:
            free.append(threads.submit(lock.acquire, False).result())
        free.append(threads.submit(lock.acquire, False).result())
        threads.submit(lock.release).result()
    assert free == [False, True]


def test_events_of_steps_for_a_handle_are_kept_for_those_who_step(make: Make) -> None:
    runtime = make()
    added, handle = runtime.add(asked()), runtime.submit(asked(3, seed=1))
    assert handle.result().finish is not None
    events = runtime.step()
    assert {event.sequence for event in events} == {added}
    assert sum(event.update is not None for event in events) == added.new_tokens > 2
    runtime.submit(asked(seed=1)).result()
    runtime.cancel(added)
    assert runtime.step() == []
