"""Generators in several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from constrain import LLM, ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Tokenizer
from constrain.generator import ExLlamaV2DynamicGenerator, ExLlamaV2DynamicJob, ExLlamaV2Sampler

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


def test_jobs_and_requests_share_a_runtime(long_model: ExLlamaV2, tiny_tokenizer: ExLlamaV2Tokenizer) -> None:
    """A step for either gets both on, and none takes the results of the other."""
    generator = ExLlamaV2DynamicGenerator(long_model, ExLlamaV2Cache(long_model, max_seq_len=2048), tiny_tokenizer)
    llm = LLM(generator)
    alone = generator.generate("hello", 8, gen_settings=GREEDY), llm.generate("yes", max_new_tokens=24, seed=1).text
    job = ExLlamaV2DynamicJob(tiny_tokenizer.encode("hello"), 8, gen_settings=GREEDY)
    generator.enqueue(job)
    assert llm.generate("yes", max_new_tokens=24, seed=1).text == alone[1]
    results = generator.iterate()
    assert "hello" + "".join(each.get("text", "") for each in results) == alone[0] and results[-1]["eos"]
    pending = llm.submitter({"max_new_tokens": 24, "seed": 1}, copied=False)(0, "yes")
    assert generator.generate("hello", 8, gen_settings=GREEDY) == alone[0] and generator.pending_jobs == []
    assert pending.result().text == alone[1]
