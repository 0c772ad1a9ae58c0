"""Training: batches, the network against transformers, a few steps, resumption and the exported folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from constrain import ExLlamaV2Config
from constrain.demo import model_dir
from constrain.demo.batches import LENGTHS, Codec, loader
from constrain.demo.export import export
from constrain.demo.network import Network, Shape
from constrain.demo.synth import Split, example
from constrain.demo.train import Trainer, probe, schedule, train

TINY = Shape(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=48)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_dir() / name, tmp_path)
    return tmp_path


def test_batches_hold_the_record_as_targets() -> None:
    codec = Codec(model_dir())
    batch = next(loader(model_dir(), seed=0, tokens=512, workers=0))
    assert batch.ids.shape[1] in LENGTHS
    assert torch.equal(batch.ids.flatten()[batch.at + 1], batch.targets)
    first = batch.targets[: batch.targets.tolist().index(codec.eos)]
    json.loads(codec.decode(first.tolist()))
    assert (batch.targets == codec.eos).sum() == len(batch.ids)


def test_the_exported_folder_gives_the_same_logits_elsewhere(folder: Path) -> None:
    torch.manual_seed(0)
    network = Network(TINY)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.bfloat16().float() + (parameter.ndim == 1))
    export(network, folder)
    ids = torch.randint(0, TINY.vocab, (2, 17))
    reference = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits
    ours = network(ids, torch.arange(ids.numel())).view_as(reference)
    torch.testing.assert_close(ours, reference, atol=1e-4, rtol=1e-4)
    assert ExLlamaV2Config(str(folder)).max_seq_len == TINY.context


def test_greedy_stops_at_eos_and_at_the_limit() -> None:
    torch.manual_seed(1)
    network = Network(TINY)
    prompts = [[1, 7, 9], [1, 30, 31, 32, 33]]
    free = network.greedy(prompts, eos=-1, limit=6)
    assert [len(row) for row in free] == [6, 6]
    assert free == [network.greedy([prompt], eos=-1, limit=6)[0] for prompt in prompts]
    stop = free[0][0]
    assert network.greedy(prompts, eos=stop, limit=6)[0] == []


def test_schedule_rises_then_falls() -> None:
    assert schedule(0, 1000, warmup=10) == pytest.approx(0.1)
    assert schedule(10, 1000, warmup=10) == pytest.approx(1.0)
    assert schedule(1000, 1000, warmup=10) == pytest.approx(0.01)


def test_a_few_steps_learn_and_resume(folder: Path) -> None:
    torch.manual_seed(0)
    checkpoint = folder / "state" / "checkpoint.pt"
    trainer = Trainer(TINY, 8, 3e-2, checkpoint, "cpu")
    batch = next(loader(folder, seed=0, tokens=512, workers=0))
    losses = [trainer.update(batch).item() for _ in range(7)]
    assert losses[-1] < losses[0]
    trainer.save()
    resumed = Trainer(TINY, 8, 3e-2, checkpoint, "cpu")
    assert resumed.step == 7
    train(resumed, folder, seed=0, tokens=512, workers=0, seconds=60)
    assert resumed.step == 8
    export(resumed.network, folder)
    assert load_file(folder / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16


def test_probe_scores_every_example_that_fits(folder: Path) -> None:
    assert len(example(1, Split.WORDINGS, 0).text) > 0
    judged = probe(Network(TINY), Codec(folder), Split.WORDINGS, 1, "cpu")
    assert judged.records == 0.0
