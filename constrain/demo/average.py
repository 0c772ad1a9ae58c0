"""Averages of models: ``python -m constrain.demo.average OUT 0.4 FOLDER 0.6 FOLDER``.

The mean of models that were trained from the same weights is often better than each (Wortsman et al. 2022, *Model
soups*).
"""

from __future__ import annotations

from pathlib import Path

import click
import torch

from constrain.demo.export import export, restore
from constrain.demo.network import Network


@torch.no_grad()
def average(parts: list[tuple[float, Network]]) -> Network:
    """Compute the weighted mean of networks of one shape; the weights are divided by their sum."""
    total = sum(weight for weight, _ in parts)
    states = [(weight / total, network.state_dict()) for weight, network in parts]
    mean = Network(parts[0][1].shape)
    mean.load_state_dict({name: torch.stack([w * state[name] for w, state in states]).sum(0) for name in states[0][1]})
    return mean


@click.command()
@click.argument("out", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("parts", nargs=-1, required=True)
def main(out: Path, parts: tuple[str, ...]) -> None:
    """Write the mean of models to OUT, which has their tokenizer; PARTS are weights, each before a model folder."""
    if len(parts) % 2:
        raise click.UsageError("give a weight before each model folder")
    weighted = zip(parts[::2], parts[1::2], strict=True)
    export(average([(float(weight), restore(Path(folder))) for weight, folder in weighted]), out)


if __name__ == "__main__":
    main()
