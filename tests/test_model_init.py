from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from constrain import model_init
from constrain.errors import ConfigError


def parsed(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--own", default="x")
    model_init.add_args(parser)
    return parser.parse_args([str(argument) for argument in arguments])


def test_a_model_of_options(tiny_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed("-m", tiny_dir, "-l", 128, "-chunk", 64, "-nfa", "-ra", 2.0, "-rs", 4, "-gs", "4,5")
    model_init.check_args(args)
    model_init.print_options(args)
    shown = capsys.readouterr().out
    assert str(tiny_dir) in shown and "length: 128" in shown and "own" not in shown and "low_mem" not in shown
    model, tokenizer = model_init.init(args, benchmark=True, max_batch_size=2, max_output_len=16)
    assert "Loaded in" in capsys.readouterr().out
    config = model.config
    assert model.loaded and tokenizer.config is config and config.no_flash_attn
    assert (config.max_seq_len, config.max_input_len, config.max_attention_size) == (128, 64, 64**2)
    assert (config.max_batch_size, config.max_output_len) == (2, 16)
    assert (config.scale_alpha_value, config.scale_pos_emb) == (2.0, 4)


def test_low_memory_and_yarn(tiny_dir: Path) -> None:
    model, _ = model_init.init(parsed("-m", tiny_dir, "-lm", "-ry", 4), quiet=True, max_input_len=512)
    assert model.config.max_input_len == 512 and model.config.max_attention_size == 1024**2
    assert (model.config.rope.method, model.config.rope.factor, model.config.rope.original_length) == ("yarn", 4, 256)


def test_loading_may_be_left_to_the_program(tiny_dir: Path) -> None:
    args = parsed("-m", tiny_dir, "-gs", "auto")
    assert not model_init.init(args, quiet=True, allow_auto_split=True)[0].loaded
    assert not model_init.init(parsed("-m", tiny_dir), quiet=True, skip_load=True)[0].loaded
    with pytest.raises(ConfigError, match="--gpu_split auto is not for this program"):
        model_init.init(args, quiet=True)


@pytest.mark.parametrize("split", [(), ("-gs", "auto"), ("-gs", "4")])
def test_layers_are_split_over_devices(tiny_dir: Path, split: tuple[str, ...]) -> None:
    model, _ = model_init.init(parsed("-m", tiny_dir, "-tp", *split), quiet=True)
    assert model.loaded and model.tp_context is not None and len(model.tp_context.devices) == 1


def test_what_cannot_be_is_refused(tiny_dir: Path) -> None:
    with pytest.raises(ConfigError, match="neither auto nor numbers"):
        model_init.init(parsed("-m", tiny_dir, "-gs", "much"), quiet=True)
    with pytest.raises(ConfigError, match="--rope_yarn must be a finite number of at least 1"):
        model_init.init(parsed("-m", tiny_dir, "-ry", "-1"), quiet=True)
    with pytest.raises(ConfigError, match="has no experts"):
        model_init.init(parsed("-m", tiny_dir, "-ept", "2"))


def test_folders_are_checked(tmp_path: Path, tiny_dir: Path) -> None:
    model_init.check_args(parsed("-m", tiny_dir))
    for arguments, message in [
        ([], "--model_dir"),
        (["-m", tmp_path / "none"], "no such folder"),
        (["-m", tmp_path], "no config.json"),
    ]:
        with pytest.raises(SystemExit, match=message):
            model_init.check_args(parsed(*arguments))
