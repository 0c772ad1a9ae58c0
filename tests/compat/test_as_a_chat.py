"""A chat program that was written for exllamav2 runs as it is: from its command line to its second answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from constrain.compat.exllamav2.__main__ import main

PROGRAM = """
import argparse
import sys

import torch
from exllamav2 import *
from exllamav2.generator import *
from exllamav2 import model_init

parser = argparse.ArgumentParser()
parser.add_argument("--cache", default="fp16")
parser.add_argument("--draft", default=None)
parser.add_argument("--ngram", action="store_true")
model_init.add_args(parser)
args = parser.parse_args()
model_init.check_args(args)
model_init.print_options(args)
model, tokenizer = model_init.init(
    args, allow_auto_split=True, progress=True, max_input_len=512, max_output_len=16, benchmark=True
)

draft_model = draft_cache = None
if args.draft:
    draft_config = ExLlamaV2Config()
    draft_config.model_dir = args.draft
    draft_config.prepare()
    draft_config.max_seq_len = model.config.max_seq_len
    draft_config.scale_alpha_value = None
    draft_config.no_flash_attn = args.no_flash_attn
    draft_model = ExLlamaV2(draft_config)
    draft_model.load()
    draft_cache = ExLlamaV2Cache(draft_model)

kinds = {"fp16": ExLlamaV2Cache, "fp8": ExLlamaV2Cache_8bit, "q4": ExLlamaV2Cache_Q4, "q8": ExLlamaV2Cache_Q8}
assert not model.tp_context
cache = kinds[args.cache](model, lazy=not model.loaded)
if not model.loaded:
    model.load_autosplit(cache)
generator = ExLlamaV2StreamingGenerator(model, cache, tokenizer, draft_model, draft_cache, num_speculative_tokens=4)
generator.speculative_ngram = args.ngram
generator.speculative_prob_threshold = 0.0

settings = ExLlamaV2Sampler.Settings(
    temperature=0.0, top_k=50, top_p=0.8, top_a=0.0, typical=0.0, skew=0.0, token_repetition_penalty=1.01,
    token_frequency_penalty=0.0, token_presence_penalty=0.0, smoothing_factor=0.0, dry_allowed_length=2, dry_base=1.75,
    dry_multiplier=0.0, dry_range=1024, xtc_probability=0.0, xtc_threshold=0.1,
)
stop = [tokenizer.eos_token_id, "User:", tokenizer.single_id("<|nothing|>")]
generator.set_stop_conditions([condition for condition in stop if condition])
context = torch.empty((1, 0), dtype=torch.long)
for message in ("hello there", "The quick brown fox"):
    said = tokenizer.encode(f"User: {message}\\n", add_bos=False, encode_special_tokens=True)
    context = torch.cat([context, said], dim=-1)
    assert context.shape[-1] < model.config.max_seq_len
    generator.begin_stream_ex(context, settings)
    text = ""
    for _ in range(20):
        result = generator.stream_ex()
        chunk, eos, tokens = result["chunk"], result["eos"], result["chunk_token_ids"]
        text += chunk
        context = torch.cat([context, tokens], dim=-1)
        if eos:
            break
        if generator.full():
            sys.exit("the context is full")
    print("answer:", ascii(text))
    assert context.shape[-1] > 20 and generator.stop_tokens
efficiency, accuracy, total, drafted, accepted = generator.get_sd_stats()
assert total >= 40 and bool(drafted) == bool(args.draft or args.ngram)
generator.reset_sd_stats()
"""


OPTIONS = [[], ["-gs", "auto", "--cache", "q8"], ["--draft", "MODEL"], ["--ngram", "--cache", "fp8"]]


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_chat_program(
    options: list[str],
    tiny_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "chat.py").write_text(PROGRAM)
    arguments = [str(tiny_dir) if word == "MODEL" else word for word in ["-m", "MODEL", *options]]
    monkeypatch.setattr(sys, "argv", ["python", str(tmp_path / "chat.py"), *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    main()
    answers = [line for line in capsys.readouterr().out.splitlines() if line.startswith("answer:")]
    assert len(answers) == 2 and all(len(answer) > 10 for answer in answers)
