"""Training of the built-in model: ``python -m constrain.demo.train``.

Examples are generated on the fly by worker processes, and none is used twice; the loss is on the record only. Training
takes a given time, which determines the learning rate; an interrupted run resumes from its checkpoint when started
again. ``--start-from`` continues from existing weights. ``torchrun --nproc-per-node N -m constrain.demo.train`` trains
on N GPUs.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from constrain.demo import model_dir
from constrain.demo.batches import Batch, Codec, loader
from constrain.demo.export import export, restore
from constrain.demo.muon import Muon
from constrain.demo.network import Network, Segments, Shape
from constrain.demo.scoring import Score, score
from constrain.demo.synth import CLEAN, Split, example

_MAX_ANSWER_TOKENS = 320
_REPORT_STEPS, _SAVE_STEPS = 250, 2500


class Trainer:
    """A network in training, with its optimisers; resumes from ``checkpoint`` if that file exists.

    The matrices of the layers are trained with Muon (Jordan et al. 2024), its updates scaled to the size of AdamW's
    (Liu et al. 2025), so that both share one learning rate; embeddings and norms with AdamW.

    Attributes:
        step: number of steps so far.
        spent: seconds of training so far, out of ``seconds``.
    """

    def __init__(
        self, network: Network, seconds: float, peak: float, checkpoint: Path, device: str, decay: float = 0.1
    ) -> None:
        self.network = network.to(device)
        self.seconds, self.peak, self.checkpoint, self.device = seconds, peak, checkpoint, device
        self.step, self.spent = 0, 0.0
        self.optimizers = _optimizers(self.network, peak, decay, fused=device != "cpu")
        if checkpoint.exists():
            state = torch.load(checkpoint, map_location=device, weights_only=True)
            self.network.load_state_dict(state["network"])
            for optimizer, inner in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(inner)
            self.step, self.spent = state["step"], state["spent"]
        self._forward = DistributedDataParallel(self.network) if dist.is_initialized() else self.network

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "network": self.network.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.checkpoint)

    def compile(self) -> None:
        """Compile the layers, one kernel set for each bucket of lengths."""
        for layer in self.network.model.layers:
            layer.compile(dynamic=False)

    def update(self, batch: Batch) -> torch.Tensor:
        """Run one step of the optimisers, and return the loss in nats a token, on the device."""
        rate = self.peak * schedule(self.step, self.spent / self.seconds)
        parts = (batch.ids, batch.starts, batch.at, batch.targets)
        ids, starts, at, targets = (part.to(self.device, non_blocking=True) for part in parts)
        with torch.autocast(torch.device(self.device).type, torch.bfloat16):
            loss = F.cross_entropy(self._forward(ids, Segments(starts, batch.longest), at).float(), targets)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()


def _optimizers(network: Network, rate: float, decay: float, fused: bool) -> list[torch.optim.Optimizer]:
    matrices = [p for p in network.model.layers.parameters() if p.ndim == 2]
    norms = [p for p in network.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [
        {"params": [network.model.embed_tokens.weight], "weight_decay": decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return [
        Muon(matrices, rate, decay),
        torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=fused),
    ]


def schedule(step: int, progress: float, warmup: int = 400) -> float:
    """Compute the learning rate as a share of its peak.

    It rises linearly over ``warmup`` steps, and decays with a half cosine of ``progress``, from 0 to 1, to one
    hundredth.
    """
    rise = min(1.0, (step + 1) / warmup)
    return rise * (0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, progress))) / 2)


def greedy_score(network: Network, codec: Codec, split: Split, count: int, device: str, seed: int = 1) -> Score:
    """Score greedy sampling without constraint on those of the first ``count`` examples of a split that fit."""
    samples = [example(seed, split, index) for index in range(count)]
    pairs = [(sample, codec.prompt(sample)) for sample in samples]
    pairs = sorted(
        (pair for pair in pairs if len(pair[1]) + _MAX_ANSWER_TOKENS <= network.shape.context), key=lambda p: len(p[1])
    )
    answers: list[str] = []
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        for start in range(0, len(pairs), 256):
            prompts = [prompt for _, prompt in pairs[start : start + 256]]
            answers += [codec.decode(ids) for ids in network.greedy(prompts, codec.eos, _MAX_ANSWER_TOKENS)]
    return score((text, sample.record, sample.schema) for text, (sample, _) in zip(answers, pairs, strict=True))


def train(trainer: Trainer, folder: Path, seed: int, tokens: int, workers: int, clean: float = CLEAN) -> None:
    """Train until the time is spent. Every few minutes, and at the end, save the checkpoint and export the model."""
    started = time.monotonic() - trainer.spent
    # The position in the stream of examples is not in the checkpoint, so a resumed run has another seed.
    batches = loader(folder, seed + 1000 * trainer.step + _rank(), tokens, workers, clean)
    losses: list[torch.Tensor] = []
    while trainer.spent < trainer.seconds:
        losses.append(trainer.update(next(batches)))
        trainer.spent = _of_first(time.monotonic() - started)
        if len(losses) == _REPORT_STEPS:
            mean = torch.stack(losses).mean().item()
            if _rank() == 0:
                print(f"step {trainer.step:6d}  loss {mean:.4f}  {trainer.spent:.0f} s", flush=True)
            losses = []
        if trainer.step % _SAVE_STEPS == 0:
            _save(trainer, folder)
    _save(trainer, folder)


def _save(trainer: Trainer, folder: Path) -> None:
    if _rank() == 0:
        trainer.save()
        export(trainer.network, folder)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _of_first(seconds: float) -> float:
    """Return the argument of the first process in all of them, so that they agree on the learning rate and the end."""
    if not dist.is_initialized():
        return seconds
    shared = torch.tensor([seconds], dtype=torch.float64)
    dist.broadcast(shared, 0)
    return shared.item()


def _start_processes() -> str:
    """Join the processes of ``torchrun``, if this is one of them, and return the device to train on."""
    if not torch.cuda.is_available():
        device = "cpu"
    else:
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
    if dist.is_torchelastic_launched():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device != "cpu" else "gloo")
    return device


@click.command()
@click.option(
    "--out",
    default=model_dir(),
    type=click.Path(path_type=Path),
    show_default=True,
    help="Holds the tokenizer; receives the model.",
)
@click.option("--checkpoint", default="build/demo-checkpoint.pt", type=click.Path(path_type=Path), show_default=True)
@click.option("--minutes", default=25.0, show_default=True, help="Time of the whole training, in all its runs.")
@click.option(
    "--start-from",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of an exported model whose weights to start from; random weights if omitted.",
)
@click.option("--tokens", default=131_072, show_default=True, help="Tokens of a batch, padding included.")
@click.option("--peak", default=3e-3, show_default=True, help="Highest learning rate.")
@click.option("--decay", default=0.1, show_default=True, help="Weight decay.")
@click.option("--dropout", default=0.0, show_default=True, help="Share of what a part of a layer adds that is dropped.")
@click.option("--clean", default=CLEAN, show_default=True, help="Share of the documents that are without noise.")
@click.option("--workers", default=14, show_default=True, help="Processes that generate examples.")
@click.option("--seed", default=0, show_default=True)
@click.option("--probe", "num_examples", default=512, show_default=True, help="Held-out examples to score at the end.")
def main(
    out: Path,
    checkpoint: Path,
    minutes: float,
    start_from: Path | None,
    tokens: int,
    peak: float,
    decay: float,
    dropout: float,
    clean: float,
    workers: int,
    seed: int,
    num_examples: int,
) -> None:
    """Train the built-in model and export it."""
    device = _start_processes()
    torch.manual_seed(seed)
    codec = Codec(out)
    shape = Shape(vocab=codec.tokenizer.get_vocab_size())
    network = restore(start_from, dropout) if start_from else Network(shape, dropout)
    trainer = Trainer(network, 60 * minutes, peak, checkpoint, device, decay)
    if device != "cpu":
        trainer.compile()
    train(trainer, out, seed, tokens, workers, clean)
    if _rank() != 0:
        return
    trained = restore(out).to(device)
    for split in (Split.WORDINGS, Split.FAMILIES) if num_examples else ():
        result = greedy_score(trained, codec, split, num_examples, device)
        print(f"{split.value}: {result} (greedy, without constraint)")


if __name__ == "__main__":
    main()
