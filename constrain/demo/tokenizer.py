"""The tokenizer of the built-in model: byte-level BPE designed for copying.

A value should have the same tokens in the text and in the record, whatever its context. So words, single digits and
single punctuation marks are split before merging, and only the punctuation of JSON around a quotation mark forms longer
tokens. A space is merged with the first token of the word after it, but only at the end: `` Kowalski`` is split like
``Kowalski``, and its first token differs by the space alone.

``python -m constrain.demo.tokenizer`` trains it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from random import Random

import click
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from constrain.demo import model_dir
from constrain.demo.network import Shape
from constrain.demo.synth import Split, example, pools
from constrain.extract.prompts.builtin import RECORD_MARK, SCHEMA_MARK, TEXT_MARK, build_prompt

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SPECIAL = (PAD, BOS, EOS, SCHEMA_MARK, TEXT_MARK, RECORD_MARK)
VOCABULARY = 7680
"""Number of tokens without a leading space."""

_SPACE = "Ġ"  # the space in the byte alphabet of GPT-2 (Radford et al. 2019)
_JSON = r'[\]}]*,? ?[\[{]*"[?]?[:,]?[\]}]*,? ?[\[{]*"?'  # JSON around a quotation mark, such as ", " or "}, {"
_WORDS = (r"\p{Lu}?[\p{Ll}\p{M}]+", r"\p{Lu}+", r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]")
_BLANKS = (r"\n+", r"[^\S\n]+(?!\S)", r"[^\S\n]+")
_PIECES = "|".join([_JSON, *_WORDS, *_BLANKS])
_SPACED_PIECES = "|".join([_JSON, *(f" ?{word}" for word in _WORDS), *_BLANKS])


def train_tokenizer(documents: int, seed: int = 0) -> Tokenizer:
    """Train a tokenizer on the prompts and records of ``documents`` training examples, and on lists of words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(_PIECES)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(documents, seed), trainer)
    return _with_spaces(tokenizer)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": Shape.context,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": True,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _pre_tokenizer(pieces: str) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(pieces), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _with_spaces(plain: Tokenizer) -> Tokenizer:
    """Add the tokens that begin with a space, by merges that come after all others."""
    model = json.loads(plain.to_str())["model"]
    ids: dict[str, int] = model["vocab"]
    merges = [tuple(pair) for pair in model["merges"]]
    for token in sorted(_first_tokens(plain), key=ids.__getitem__):
        ids[_SPACE + token] = len(ids)
        merges.append((_SPACE, token))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.pre_tokenizer = _pre_tokenizer(_SPACED_PIECES)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def _first_tokens(tokenizer: Tokenizer) -> set[str]:
    """Return the tokens that words of the word lists begin with, and all printable ASCII characters but ``"``."""
    lists = ("english", "other_languages", "first_names", "last_names", "cities")
    words = [form for name in lists for word in pools.words(name) for form in (word, word.capitalize())]
    signs = set(string.printable) - set(string.whitespace) - {'"'}
    return signs | {encoded.tokens[0] for encoded in tokenizer.encode_batch(words)}


def _corpus(documents: int, seed: int) -> Iterator[str]:
    rng = Random(seed)
    lists = [pools.words(name) for name in ("english", "other_languages")]
    for index in range(documents):
        sample = example(seed, Split.TRAIN, index)
        yield build_prompt(sample.schema, sample.text)
        yield sample.answer
        for known, count in zip(lists, (60, 12), strict=True):
            # Word lists are in order of frequency (Zipf 1949): a share that falls off with the rank.
            ranks = [int(len(known) ** rng.random()) - 1 for _ in range(count)]
            yield " ".join(known[rank] if rng.random() < 0.8 else known[rank].capitalize() for rank in ranks)


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
