"""Train the built-in model: ``python -m constrain.demo.train``.

Examples are written on the fly by worker processes, never twice; the loss is on the record alone. A run may stop after
``--seconds`` and go on from its checkpoint when started again. 24,000 steps take about 20 minutes of one H200.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F

from constrain.demo import model_dir
from constrain.demo.batches import Batch, Codec, loader
from constrain.demo.export import export
from constrain.demo.network import Network, Shape
from constrain.demo.scoring import Score, score
from constrain.demo.synth import Split, example

_PROBE_LIMIT = 320


class Trainer:
    """Network, optimiser and the step they are at; resumes from ``checkpoint`` where that file exists."""

    def __init__(self, shape: Shape, steps: int, peak: float, checkpoint: Path, device: str) -> None:
        self.network = Network(shape).to(device)
        self.steps, self.peak, self.checkpoint, self.device = steps, peak, checkpoint, device
        self.step = 0
        parameters = list(self.network.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=device == "cuda")
        if checkpoint.exists():
            state = torch.load(checkpoint, map_location=device, weights_only=True)
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.checkpoint)

    def compile(self) -> None:
        """Compile the layers, one kernel set for each row length."""
        torch._dynamo.config.recompile_limit = 64
        for layer in self.network.model.layers:
            layer.compile(dynamic=False)

    def update(self, batch: Batch) -> torch.Tensor:
        """One step of the optimiser; returns the loss in nats a token, on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * schedule(self.step, self.steps)
        ids, at, targets = (part.to(self.device, non_blocking=True) for part in (batch.ids, batch.at, batch.targets))
        with torch.autocast(self.device, torch.bfloat16):
            loss = F.cross_entropy(self.network(ids, at).float(), targets)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()


def schedule(step: int, steps: int, warmup: int = 400) -> float:
    """Share of the peak learning rate: linear warm-up, then half a cosine down to one hundredth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup)))) / 2


def probe(network: Network, codec: Codec, split: Split, count: int, device: str, seed: int = 1) -> Score:
    """Score of greedy decoding without constraint on the first ``count`` examples of a split that fit."""
    samples = [example(seed, split, index) for index in range(count)]
    kept = [(sample, codec.prompt(sample)) for sample in samples]
    kept = sorted(
        (pair for pair in kept if len(pair[1]) + _PROBE_LIMIT <= network.shape.context), key=lambda p: len(p[1])
    )
    answers: list[str] = []
    with torch.autocast(device, torch.bfloat16):
        for start in range(0, len(kept), 256):
            prompts = [prompt for _, prompt in kept[start : start + 256]]
            answers += [codec.decode(ids) for ids in network.greedy(prompts, codec.eos, _PROBE_LIMIT)]
    return score((text, sample.record, sample.schema) for text, (sample, _) in zip(answers, kept, strict=True))


def train(trainer: Trainer, folder: Path, seed: int, tokens: int, workers: int, seconds: float) -> None:
    """Run until the last step or for ``seconds``, then save the checkpoint."""
    started = time.monotonic()
    # Fresh examples after every resumption.
    batches = loader(folder, seed + 1000 * trainer.step, tokens, workers)
    losses: list[torch.Tensor] = []
    seen = 0
    while trainer.step < trainer.steps and time.monotonic() - started < seconds:
        batch = next(batches)
        losses.append(trainer.update(batch))
        seen += batch.ids.numel()
        if trainer.step % 250 == 0 or trainer.step == trainer.steps:
            mean, elapsed = torch.stack(losses).mean().item(), time.monotonic() - started
            print(
                f"step {trainer.step:6d}  loss {mean:.4f}  {seen / elapsed:,.0f} tokens/s  {elapsed:.0f} s", flush=True
            )
            losses = []
    trainer.save()


@click.command()
@click.option(
    "--out",
    default=model_dir(),
    type=click.Path(path_type=Path),
    show_default=True,
    help="Holds the tokenizer; receives the model.",
)
@click.option("--checkpoint", default="build/demo-checkpoint.pt", type=click.Path(path_type=Path), show_default=True)
@click.option("--steps", default=20_000, show_default=True, help="Steps of the whole schedule.")
@click.option("--tokens", default=131_072, show_default=True, help="Tokens of a batch, padding included.")
@click.option("--peak", default=3e-3, show_default=True, help="Highest learning rate.")
@click.option("--workers", default=14, show_default=True, help="Processes that write examples.")
@click.option("--seconds", default=math.inf, help="Stop and save after this time; start again to go on.")
@click.option("--seed", default=0, show_default=True)
@click.option("--probe", "probes", default=512, show_default=True, help="Held-out examples to score at the end.")
def main(
    out: Path,
    checkpoint: Path,
    steps: int,
    tokens: int,
    peak: float,
    workers: int,
    seconds: float,
    seed: int,
    probes: int,
) -> None:
    """Train the built-in model and export it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    codec = Codec(out)
    trainer = Trainer(Shape(vocab=codec.tokenizer.get_vocab_size()), steps, peak, checkpoint, device)
    if device == "cuda":
        trainer.compile()
    train(trainer, out, seed, tokens, workers, seconds)
    export(trainer.network, out)
    plain = Network(trainer.network.shape).to(device)
    plain.load_state_dict(trainer.network.state_dict())
    for split in (Split.WORDINGS, Split.FAMILIES) if probes else ():
        print(f"{split.value}: {probe(plain, codec, split, probes, device)} (greedy, without constraint)")


if __name__ == "__main__":
    main()
