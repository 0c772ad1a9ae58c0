"""``constrain chat``: a conversation in the terminal."""

from __future__ import annotations

import readline  # noqa: F401 (input() edits lines with it)
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from constrain.cli.options import GpuOptions, SchemaParam, gpu_options, max_new_tokens_option, model_option, seed_option
from constrain.errors import ConstrainError

if TYPE_CHECKING:
    from constrain.chat import Chat
    from constrain.extract import Target

PROMPT = "> "
_NO_TEMPLATE = (
    "note: this model has no chat template, and may not answer; --model takes one that was trained for conversations"
)


@click.command()
@click.option("--system", help="What the model is told before the first message.")
@click.option("--schema", "target", type=SchemaParam(), help="Answer with JSON documents that match it.")
@click.option("--regex", help="Answer with texts that this regular expression matches.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 takes the most likely tokens.  [default: 0.8]")
@model_option
@gpu_options
@max_new_tokens_option
@seed_option
def chat(
    system: str | None,
    target: Target[Any] | None,
    regex: str | None,
    temperature: float | None,
    model_dir: Path | None,
    max_new_tokens: int,
    seed: int | None,
    gpus: GpuOptions,
) -> None:
    """Talk to the model.

    Every line is a message, and the answer appears as it is written. Ctrl-C breaks an answer off; /reset starts over;
    /quit, or the end of the input, leaves.
    """
    from constrain.chat import Chat
    from constrain.generator import ExLlamaV2Sampler
    from constrain.llm import load, make_filters

    llm = load(model_dir, max_batch_size=1, **gpus)
    if not llm.tokenizer.chat_templates:
        click.echo(_NO_TEMPLATE, err=True)
    settings = ExLlamaV2Sampler.Settings()
    if temperature is not None:
        settings = replace(settings, temperature=temperature)
    conversation = Chat(llm, system, settings, max_new_tokens, seed)
    filters = make_filters(llm.model, llm.tokenizer, json_schema=target, regex=regex)
    while (message := _read()) is not None:
        if message == "/reset":
            conversation.reset()
        elif message:
            _print_answer(conversation, message, filters)


def _read() -> str | None:
    """Read the next message; return ``None`` at the end of the input."""
    try:
        message = input(PROMPT).strip()
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return None
    return None if message == "/quit" else message


def _print_answer(conversation: Chat, message: str, filters: list[Any]) -> None:
    try:
        for text in conversation.answer(message, filters):
            click.echo(text, nl=False)
    except KeyboardInterrupt:
        pass
    except ConstrainError as error:
        click.echo(f"Error: {error}", err=True)
    click.echo()
    if conversation.finish_reason == "max_new_tokens":
        click.echo("(stopped; see --max-new-tokens)", err=True)
