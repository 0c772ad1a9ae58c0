"""The tokenizer of the built-in model: byte-level BPE designed for copying.

A value should have the same tokens in the text and in the record, whatever its context. So words, single digits, single
punctuation marks and spaces are split before merging (a space is never merged with a word), and only the punctuation of
JSON around a quotation mark forms longer tokens.

``python -m constrain.demo.tokenizer`` trains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from constrain.demo import model_dir
from constrain.demo.synth import Split, example
from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK, build_prompt

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SPECIAL = (PAD, BOS, EOS, SCHEMA_MARK, TEXT_MARK, RECORD_MARK)
VOCABULARY = 6144

_PIECES = "|".join(
    [
        r'[\]}]*,? ?[\[{]*"[?]?[:,]?[\]}]*,? ?[\[{]*"?',  # JSON around a quotation mark, such as ", " or "}, {"
        r"\p{Lu}?[\p{Ll}\p{M}]+",
        r"\p{Lu}+",
        r"\p{L}+",
        r"\p{N}",
        r"\n+",
        r"[^\S\n]+",
        r"[^\s\p{L}\p{N}]",
    ]
)


def train_tokenizer(documents: int, seed: int = 0) -> Tokenizer:
    """Train a tokenizer on the prompts and records of the first ``documents`` training examples."""
    tokenizer = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(documents, seed), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": True,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _corpus(documents: int, seed: int) -> Iterator[str]:
    for index in range(documents):
        sample = example(seed, Split.TRAIN, index)
        yield build_prompt(sample.schema, sample.text)
        yield sample.answer


@click.command()
@click.option("--documents", default=60_000, show_default=True, help="Examples to train on.")
@click.option(
    "--out", default=model_dir(), type=click.Path(path_type=Path), show_default=True, help="Folder to write to."
)
def main(documents: int, out: Path) -> None:
    """Train the tokenizer of the built-in model."""
    save_tokenizer(train_tokenizer(documents), out)


if __name__ == "__main__":
    main()
