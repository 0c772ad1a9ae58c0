"""Tiny random models with the chat templates of Llama 3, Qwen, Mistral and Gemma, and tokenizers of the same kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from checkpoints import make_checkpoint
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "Extract a record from the document, and answer with that record as JSON and nothing else. What the document does "
    "not say is null or left out, where the form allows it. Take every value from the document, and make nothing up.",
    'Ada Lovelace paid 12 euros. {"name": "Ada", "paid": true, "items": [{"sku": "A-1", "count": 2}]}',
    "<think>\nThe user asks for a number.\n</think>\n\nuser assistant system model",
] * 4

_LLAMA3 = r"""{% set loop_messages = messages %}{% for message in loop_messages %}{% set content =
'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if
loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if
add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

_QWEN2_5 = r"""{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""

_QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(
        message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' }}
            {{- content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

_R1 = r"""{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}{%
endif %}{% if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{% endif %}{% if message['role'] ==
'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content =
content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{% endif %}{%
endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"""

_MISTRAL = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant") }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""

_GEMMA = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{%
endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{
raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if
(message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{
'<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if
add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"""

_PHI3 = r"""{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n'}}{%
endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""


@dataclass(frozen=True)
class ChatFamily:
    """Chat template and special tokens of a published family.

    Attributes:
        make: makes the tokenizer, without added tokens.
        template: the chat template.
        special: names of special tokens: BOS, EOS, end of a turn, others.
        added: names of added tokens that are not special.
        rstrip: whether special tokens swallow white space after them.
    """

    make: Callable[[], Tokenizer]
    template: str
    special: tuple[str, ...]
    added: tuple[str, ...] = ()
    rstrip: bool = False

    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_str(self.make().to_str())
        tokenizer.add_special_tokens([AddedToken(name, normalized=False, rstrip=self.rstrip) for name in self.special])
        tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in self.added])
        return tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """The content of ``tokenizer_config.json``."""
        bos, eos, *_ = self.special
        roles = {"bos_token": bos, "eos_token": eos, "pad_token": eos, "clean_up_tokenization_spaces": False}
        return {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": self.template, **roles}

    def save_tokenizer(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(self.settings))
        return folder

    def save_model(self, folder: Path, context: int = 4096) -> Path:
        self.save_tokenizer(folder)
        tokenizer = self.tokenizer()
        bos, eos, turn, *_ = (tokenizer.token_to_id(name) for name in self.special)
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
        ids = {"bos_token_id": bos, "eos_token_id": [eos, turn], "pad_token_id": eos}
        vocabulary = tokenizer.get_vocab_size()
        config = transformers.LlamaConfig(
            vocab_size=vocabulary, max_position_embeddings=context, num_key_value_heads=2, **sizes, **ids
        )
        make_checkpoint(folder, config)
        return folder

    def reference(self, folder: Path) -> Any:
        """The tokenizer of transformers."""
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@cache
def byte_level() -> Tokenizer:
    """Byte-level BPE with the words of Llama 3 and Qwen."""
    words = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _sentencepiece() -> Tokenizer:
    """BPE with byte fallback, as converted from SentencePiece."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    learned.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(learned.to_str())["model"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = dict.fromkeys(["<unk>", *bytes_, "\n", *sorted(model["vocab"], key=model["vocab"].__getitem__)])
    vocabulary = {piece: idx for idx, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in model["merges"]]
    return Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))


@cache
def mistral() -> Tokenizer:
    tokenizer = _sentencepiece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@cache
def gemma() -> Tokenizer:
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@cache
def llama2() -> Tokenizer:
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


_QWEN_TOKENS = ("<|endoftext|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>")
_THINKING = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

CHAT_FAMILIES = {
    "llama3": ChatFamily(
        byte_level,
        " ".join(_LLAMA3.splitlines()),
        ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    ),
    "qwen2_5": ChatFamily(byte_level, _QWEN2_5, _QWEN_TOKENS, ("<tool_call>", "</tool_call>", "<|fim_prefix|>")),
    "qwen3": ChatFamily(byte_level, _QWEN3, _QWEN_TOKENS, _THINKING),
    "r1": ChatFamily(
        byte_level,
        " ".join(_R1.splitlines()),
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        _THINKING[:2],
    ),
    "mistral": ChatFamily(mistral, _MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]")),
    "gemma": ChatFamily(
        gemma, " ".join(_GEMMA.splitlines()), ("<bos>", "<eos>", "<end_of_turn>", "<start_of_turn>"), ("\n\n", "▁▁")
    ),
    "phi3": ChatFamily(
        llama2,
        " ".join(_PHI3.splitlines()),
        ("<s>", "<|endoftext|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
        rstrip=True,
    ),
}
