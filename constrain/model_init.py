"""Creation of a model and tokenizer from command-line options, for scripts.

::

    parser = argparse.ArgumentParser()
    model_init.add_args(parser)
    args = parser.parse_args()
    model_init.check_args(args)
    model, tokenizer = model_init.init(args)
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

from constrain.arguments import check_number
from constrain.errors import ConfigError
from constrain.model import ExLlamaV2, ExLlamaV2Config, Timer
from constrain.tokenizer import ExLlamaV2Tokenizer

__all__ = ["add_args", "check_args", "init", "post_init_load", "print_options"]

_AUTO = "auto"


def add_args(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a model and how to load it."""
    add = parser.add_argument
    add("-m", "--model_dir", metavar="DIR", help="folder of the model")
    add("-gs", "--gpu_split", metavar="GB,GB,...", help="gigabytes of weights for each GPU, or auto")
    add("-tp", "--tensor_parallel", action="store_true", help="split every layer over all GPUs")
    add("-l", "--length", type=int, metavar="TOKENS", help="maximum length of a sequence")
    add("-rs", "--rope_scale", type=float, metavar="FACTOR", help="divide positions by this")
    add("-ra", "--rope_alpha", type=float, metavar="ALPHA", help="NTK scaling of the rotary base")
    add("-ry", "--rope_yarn", type=float, metavar="FACTOR", help="YaRN scaling of the rotary frequencies")
    add("-nfa", "--no_flash_attn", action="store_true", help="accepted for compatibility")
    add("-nxf", "--no_xformers", action="store_true", help="accepted for compatibility")
    add("-nsdpa", "--no_sdpa", action="store_true", help="accepted for compatibility")
    add("-ng", "--no_graphs", action="store_true", help="no CUDA graphs of decode passes")
    add("-lm", "--low_mem", action="store_true", help="smaller passes, for less memory")
    add("-ept", "--experts_per_token", type=int, metavar="N", help="experts of a mixture for each token")
    add("-lq4", "--load_q4", action="store_true", help="accepted for compatibility")
    add("-fst", "--fast_safetensors", action="store_true", help="accepted for compatibility")
    add("-ic", "--ignore_compatibility", action="store_true", help="accepted for compatibility")
    add("-chunk", "--chunk_size", type=int, metavar="TOKENS", help="maximum number of tokens of one pass")


def check_args(args: argparse.Namespace) -> None:
    """Exit with a message if there is no model folder, or a file is missing in it."""
    if not args.model_dir:
        sys.exit("no model: give its folder with --model_dir")
    folder = Path(args.model_dir)
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder")
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            sys.exit(f"{folder}: no {pattern} in this folder")


def print_options(args: argparse.Namespace) -> None:
    """Print the folder and the options that were given."""
    given = {name: value for name, value in vars(_options(args)).items() if value not in (None, False)}
    print(f"Model: {given.pop('model_dir', None)}")
    for name, value in given.items():
        print(f"  {name}: {value}")


def init(
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    skip_load: bool = False,
    benchmark: bool = False,
    max_batch_size: int | None = None,
    max_input_len: int | None = None,
    max_output_len: int | None = None,
    progress: bool = False,
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Build the model and its tokenizer.

    Args:
        args: parsed options of :func:`add_args`.
        quiet, allow_auto_split, benchmark, progress: see :func:`post_init_load`.
        skip_load: do not load the model.
        max_batch_size, max_input_len, max_output_len: see :class:`constrain.model.ExLlamaV2Config`.

    Raises:
        ModelError: the folder cannot be used, or not with these options.
    """
    config = _config(args)
    if max_batch_size is not None:
        config.max_batch_size = max_batch_size
    if max_input_len is not None:
        config.max_input_len = max_input_len
    if max_output_len is not None:
        config.max_output_len = max_output_len
    config.arch_compat_overrides(quiet, warn_only=args.ignore_compatibility)
    model, tokenizer = ExLlamaV2(config), ExLlamaV2Tokenizer(config)
    if not skip_load:
        post_init_load(model, args, quiet, allow_auto_split, benchmark, progress)
    return model, tokenizer


def post_init_load(
    model: ExLlamaV2,
    args: argparse.Namespace,
    quiet: bool = False,
    allow_auto_split: bool = False,
    benchmark: bool = False,
    progress: bool = False,
) -> None:
    """Load the model, unless ``--gpu_split auto`` leaves that to ``model.load_autosplit(cache)``.

    Args:
        model: a model that is not loaded.
        args: parsed options of :func:`add_args`.
        quiet: print nothing.
        allow_auto_split: whether the script loads the model itself with ``--gpu_split auto``.
        benchmark: print the time.
        progress: show a bar.

    Raises:
        ModelError: the model cannot be loaded with these options.
    """
    if args.gpu_split == _AUTO and not args.tensor_parallel:
        if not allow_auto_split:
            raise ConfigError("--gpu_split auto is not for this program; give gigabytes, or leave it out")
        return
    if not quiet:
        print(f"Loading {model.config.model_dir}")
    with Timer() as timer:
        load = model.load_tp if args.tensor_parallel else model.load
        load(_gigabytes(args.gpu_split), progress=progress)
    if benchmark:
        print(f"Loaded in {timer.interval:.2f} s")


def _config(args: argparse.Namespace) -> ExLlamaV2Config:
    config = ExLlamaV2Config(args.model_dir)
    if args.experts_per_token:
        config.num_experts_per_token = args.experts_per_token
    if args.rope_yarn:
        check_number("--rope_yarn", args.rope_yarn, 1, error=ConfigError)
        config.rope = replace(
            config.rope,
            method="yarn",
            factor=args.rope_yarn,
            original_length=config.max_seq_len,
            amplitude=0.1 * math.log(args.rope_yarn) + 1,
        )
    config.max_seq_len = args.length or config.max_seq_len
    config.scale_pos_emb = args.rope_scale or config.scale_pos_emb
    config.scale_alpha_value = args.rope_alpha or config.scale_alpha_value
    for name in ("no_flash_attn", "no_xformers", "no_sdpa", "no_graphs"):
        setattr(config, name, getattr(args, name) or getattr(config, name))
    config.load_in_q4 = args.load_q4
    if args.low_mem:
        config.set_low_mem()
    if args.chunk_size:
        config.max_input_len, config.max_attention_size = args.chunk_size, args.chunk_size**2
    return config


def _gigabytes(text: str | None) -> list[float] | None:
    if not text or text == _AUTO:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--gpu_split: {text!r} is neither auto nor numbers separated by commas") from error


def _options(args: argparse.Namespace) -> argparse.Namespace:
    """Select the options of :func:`add_args` from those of the script."""
    parser = argparse.ArgumentParser()
    add_args(parser)
    return argparse.Namespace(**{name: getattr(args, name) for name in vars(parser.parse_args([]))})
