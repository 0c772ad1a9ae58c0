"""Training: batches, the network against transformers, a few steps, resumption and the exported folder."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import jsonschema
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaForCausalLM

from constrain import ExLlamaV2, ExLlamaV2Config, ExLlamaV2Tokenizer
from constrain.demo import model_dir
from constrain.demo.average import main as write_average
from constrain.demo.batches import LENGTHS, Codec, loader
from constrain.demo.export import dequantized, export, quantized, restore, write_dense
from constrain.demo.network import Network, Segments, Shape, attend
from constrain.demo.synth import Split, example
from constrain.demo.train import Trainer, greedy_score, main, schedule, train
from constrain.extract.evidence import with_quotes
from constrain.extract.prompts.builtin_form import BuiltinForm
from constrain.extract.prompts.form import Example as Shown
from constrain.extract.prompts.form import Task

TINY = Shape(
    Codec(model_dir()).tokenizer.get_vocab_size(), hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=48
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_dir() / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("tokens", [512, 6000])
def test_batches_hold_the_records_as_targets(tokens: int) -> None:
    codec = Codec(model_dir())
    batch = next(loader(model_dir(), seed=0, tokens=tokens, workers=0))
    assert batch.longest in LENGTHS and len(batch.ids) == max(tokens, batch.longest)
    assert torch.equal(batch.ids[batch.at + 1], batch.targets)
    lengths = batch.starts.diff()
    assert lengths.sum() == len(batch.ids) and lengths.min() >= 0 and lengths.max() <= batch.longest
    ends = (batch.targets == codec.eos).nonzero().flatten().tolist()
    for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False):
        json.loads(codec.decode(batch.targets[start:end].tolist()))
    examples = int((batch.ids[batch.starts[:-1].clamp(max=len(batch.ids) - 1)] == codec.bos).sum())
    assert examples == len(ends) > 0


def test_packed_examples_do_not_see_each_other() -> None:
    torch.manual_seed(2)
    network = Network(TINY)
    first, second = torch.randint(0, TINY.vocab, (5,)), torch.randint(0, TINY.vocab, (9,))
    packed = Segments(torch.tensor([0, 5, 14, 14], dtype=torch.int32), 16)
    together = network(torch.cat([first, second]), packed, torch.arange(14))
    alone = [network(ids, Segments.equal(1, len(ids), ids.device), torch.arange(len(ids))) for ids in (first, second)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_attention_on_the_cpu_is_by_the_fast_kernel_and_equals_its_definition() -> None:
    starts = torch.tensor([0, 5, 14, 14], dtype=torch.int32)
    q, k, v = torch.randn(3, 14, 4, 8)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        mixed = attend(q, k, v, Segments(starts, 16))
    segment = torch.searchsorted(starts, torch.arange(14), right=True)
    seen = (segment[:, None] == segment).tril()
    scores = torch.einsum("qhd,khd->hqk", q, k) / 8**0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(mixed, torch.einsum("hqk,khd->qhd", weights, v))


def test_prompts_with_examples_are_those_of_the_form(folder: Path) -> None:
    samples = [example(0, Split.TRAIN, index) for index in range(400)]
    given = [sample for sample in samples if sample.shots]
    config = ExLlamaV2Config(model_dir())
    form = BuiltinForm(ExLlamaV2Tokenizer(config))
    assert given
    for sample in given:
        task = Task(sample.schema, examples=tuple(Shown(shot.text, shot.record) for shot in sample.shots))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert Codec(folder).prompt(sample) == form.encode(task, sample.text)[0].tolist()
        for shot in sample.shots:
            jsonschema.validate(json.loads(shot.record), with_quotes(sample.schema), jsonschema.Draft202012Validator)


def test_the_exported_folder_gives_the_same_logits_elsewhere(folder: Path) -> None:
    torch.manual_seed(0)
    export(Network(TINY), folder)
    restored = restore(folder)
    ids = torch.randint(0, TINY.vocab, (2, 17))
    model = ExLlamaV2(ExLlamaV2Config(str(folder)))
    model.load()
    found = model.forward(ids).float()[..., : TINY.vocab]
    reference = LlamaForCausalLM.from_pretrained(write_dense(folder / "dense", folder), dtype=torch.float32)(ids).logits
    ours = restored(ids.flatten(), Segments.equal(*ids.shape, ids.device), torch.arange(ids.numel()))
    torch.testing.assert_close(ours.view_as(reference), reference, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found, reference, atol=1e-4, rtol=1e-4)
    assert model.config.max_seq_len == TINY.context


def test_eight_bits_are_exact_to_half_a_step() -> None:
    weight = torch.randn(5, 64)
    weight[3] = 0
    stored = quantized("w", weight)
    assert stored["w"].dtype == torch.int8 and stored["w_scale"].dtype == torch.bfloat16
    error = (dequantized(stored)["w"] - weight).abs().amax(dim=1)
    assert (error <= stored["w_scale"].float().squeeze(1) / 2 + 1e-12).all()


def test_greedy_stops_at_eos_and_at_the_limit() -> None:
    torch.manual_seed(1)
    network = Network(TINY)
    prompts = [[1, 7, 9], [1, 30, 31, 32, 33]]
    free = network.greedy(prompts, eos=-1, limit=6)
    assert [len(row) for row in free] == [6, 6]
    assert free == [network.greedy([prompt], eos=-1, limit=6)[0] for prompt in prompts]
    stop = free[0][0]
    assert network.greedy(prompts, eos=stop, limit=6)[0] == []


def test_schedule_rises_with_the_steps_and_falls_with_the_time() -> None:
    assert schedule(0, 0.0, warmup=10) == pytest.approx(0.1)
    assert schedule(9, 0.0, warmup=10) == pytest.approx(1.0)
    assert schedule(1000, 0.5, warmup=10) == pytest.approx(0.505)
    assert schedule(1000, 1.5, warmup=10) == pytest.approx(0.01)


def test_a_few_steps_learn_and_resume(folder: Path) -> None:
    torch.manual_seed(0)
    checkpoint = folder / "state" / "checkpoint.pt"
    trainer = Trainer(Network(TINY), 2.0, 3e-2, checkpoint, "cpu")
    batch = next(loader(folder, seed=0, tokens=512, workers=0))
    losses = [trainer.update(batch).item() for _ in range(7)]
    assert losses[-1] < losses[0]
    trainer.spent = 1.999
    trainer.save()
    resumed = Trainer(Network(TINY), 2.0, 3e-2, checkpoint, "cpu")
    assert (resumed.step, resumed.spent) == (7, 1.999)
    assert resumed.update(batch).item() == trainer.update(batch).item()
    assert all(map(torch.equal, resumed.network.parameters(), trainer.network.parameters()))
    train(resumed, folder, seed=0, tokens=512, workers=0)
    assert resumed.step == 9
    assert load_file(folder / "model.safetensors")["model.norm.weight"].dtype == torch.bfloat16


def test_every_parameter_is_trained_once() -> None:
    trainer = Trainer(Network(TINY), 1.0, 1e-3, Path("absent"), "cpu")
    trained = [p for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, trained)) == sorted(map(id, trainer.network.parameters()))


def test_training_starts_from_an_exported_model(folder: Path) -> None:
    torch.manual_seed(0)
    network = Network(TINY)
    export(network, folder)
    restored = restore(folder)
    assert restored.shape == TINY
    for name, value in network.state_dict().items():
        assert torch.allclose(restored.state_dict()[name], value, atol=value.abs().max().item() / 200), name
    shutil.copytree(folder, folder / "first")
    options = {"out": folder, "checkpoint": folder / "c.pt", "start-from": folder / "first", "minutes": 1e-6}
    options |= {"tokens": 512, "workers": 0, "probe": 0}
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    trained = restore(folder)
    assert trained.shape == TINY
    moved = [(a - b).abs().max() for a, b in zip(trained.parameters(), restored.parameters(), strict=True)]
    assert 0 < max(moved) < 2e-3


def test_probe_scores_every_example_that_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrain.demo.train._MAX_ANSWER_TOKENS", 16)
    assert len(example(1, Split.WORDINGS, 0).text) > 0
    judged = greedy_score(Network(TINY), Codec(folder), Split.WORDINGS, 1, "cpu")
    assert judged.records == 0.0


def test_models_are_averaged(folder: Path) -> None:
    networks, folders = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        networks.append(Network(TINY))
        folders.append(Path(shutil.copytree(folder, folder / str(seed))))
        export(networks[-1], folders[-1])
    done = CliRunner().invoke(write_average, [str(folder), "1", str(folders[0]), "3", str(folders[1])])
    assert done.exit_code == 0, done.output
    states, found = [network.state_dict() for network in networks], restore(folder).state_dict()
    for name, first in states[0].items():
        mean = 0.25 * first + 0.75 * states[1][name]
        assert torch.allclose(found[name], mean, atol=mean.abs().max().item() / 50), name
    done = CliRunner().invoke(write_average, [str(folder), "1", str(folders[0]), "3"])
    assert done.exit_code == 2 and "a weight before each model folder" in done.output


def test_dropout_is_for_training_only() -> None:
    torch.manual_seed(0)
    network, ids = Network(TINY, dropout=0.5), torch.randint(0, TINY.vocab, (20,))
    plain = Network(TINY)
    plain.load_state_dict(network.state_dict())
    arguments = ids, Segments.equal(1, 20, ids.device), torch.arange(20)
    assert not torch.equal(network(*arguments), plain(*arguments))
    assert torch.equal(network.eval()(*arguments), plain(*arguments))
