"""Generators in several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from constrain import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler
from constrain.generator.turns import Turns

GREEDY = ExLlamaV2Sampler.Settings.greedy()


def test_threads_that_generate_get_what_they_would_alone(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=1024), tiny_tokenizer)
    prompts = ["yes", "hello there", "12 345", "the quick"]

    def text(prompt: str) -> str:
        found: str = generator.generate(prompt, 8, gen_settings=GREEDY)
        return found

    alone = [text(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        assert list(threads.map(text, prompts * 3)) == alone * 3
    assert generator.num_remaining_jobs() == 0


def test_jobs_can_be_added_and_cancelled_while_another_thread_steps(
    long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer
) -> None:
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=4096), tiny_tokenizer)
    ids = tiny_tokenizer.encode("hello")
    endless = ExLlamaV2DynamicJob(ids, 1000)
    generator.enqueue(endless)

    def step() -> None:
        while generator.num_remaining_jobs():
            generator.iterate()

    with ThreadPoolExecutor(1) as threads:
        stepping = threads.submit(step)
        for _ in range(20):
            job = ExLlamaV2DynamicJob(ids, 500)
            generator.enqueue(job)
            generator.cancel(job)
        assert not endless.is_finished, "others wait for a step, not for the end"
        generator.cancel(endless)
        stepping.result()


def test_a_thread_that_waits_goes_first() -> None:
    turns, order, waits = Turns(), list[str](), threading.Event()

    def wait() -> None:
        waits.set()
        with turns:
            order.append("other")

    other = threading.Thread(target=wait)
    with turns, turns:
        other.start()
        waits.wait()
        while not turns._next.locked():  # until it waits
            pass
    with turns:
        order.append("again")
    other.join()
    assert order == ["other", "again"]
