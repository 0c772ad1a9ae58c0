"""How families of models write calls of functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

#: Stands for the number of a call, from 0, before or after its name.
NUMBER = "{number}"


@dataclass(frozen=True)
class CallForm:
    """The form of calls; names of special tokens stand for these tokens.

    Calls are written as ``opening call separator call ... closing``, and each call as
    ``before_name NAME after_name ARGUMENTS after_arguments``, where the texts around the name may have :data:`NUMBER`.

    Attributes:
        families: models that write it.
        before_name, after_name, after_arguments: around the name and the arguments of a call.
        trigger: text that begins a call, and that occurs in no other text.
        opening, separator, closing: around and between calls.
        arguments: ``"json"``; or ``"tags"``: a pair of tags for each argument, see ``tags``.
        tags: before and after a key, and before and after its value.
        python_constants: whether values between tags may be ``True``, ``False`` and ``None``, as chat templates write
            them, in addition to those of JSON.
        parallel: whether several calls may be written.
        call_id: id of a call in prompts, where the chat template wants a certain one: with ``{name}`` and ``{number}``,
            counted from 0 in the conversation.
        id_after_arguments: whether the id of a call, 9 letters and digits, may follow its arguments.
        content_opening: text before an answer that is no call.
        content_closing: text that may end such an answer.
        reasoning: texts around thoughts, for models whose thoughts are part of the same grammar.
        marks: texts, one of which occurs in the chat templates of these models.
    """

    families: str
    before_name: str
    after_name: str
    after_arguments: str
    trigger: str
    opening: str = ""
    separator: str = ""
    closing: str = ""
    arguments: Literal["json", "tags"] = "json"
    tags: tuple[str, str, str, str] = ("", "", "", "")
    python_constants: bool = False
    parallel: bool = True
    call_id: str = ""
    id_after_arguments: bool = False
    content_opening: str = ""
    content_closing: str = ""
    reasoning: tuple[str, str] | None = None
    marks: Sequence[str] = ()

    def after(self, prompt: str, has_thought: bool) -> CallForm:
        """Return the form of what is left of an answer that the end of a prompt has begun.

        Args:
            prompt: the end of the prompt.
            has_thought: whether it has opened thoughts, and maybe closed them.
        """
        is_content = bool(self.content_opening) and prompt.endswith(self.content_opening)
        reasoning = None if is_content or has_thought else self.reasoning
        return replace(self, reasoning=reasoning, content_opening="" if is_content else self.content_opening)

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return calls as a model writes them, each given by the name of its function and its arguments as text."""
        texts = [
            f"{self.before_name}{name}{self.after_name}".replace(NUMBER, str(number)) + arguments + self.after_arguments
            for number, (name, arguments) in enumerate(calls)
        ]
        return self.opening + self.separator.join(texts) + self.closing


#: Constants as Python writes them.
CONSTANTS = {"True": True, "False": False, "None": None}

#: Around the id that may follow the arguments of a call.
ID_BEFORE, ID_AFTER = ', "id": "', '"'

_COHERE_NAME = f'{{"tool_call_id": "{NUMBER}", "tool_name": "'

#: By name; the first whose marks a chat template has is that of the model.
FORMS: dict[str, CallForm] = {
    "harmony": CallForm(
        families="GPT-OSS",
        before_name="<|channel|>commentary to=functions.",
        after_name=" <|constrain|>json<|message|>",
        after_arguments="",
        trigger="<|channel|>commentary",
        parallel=False,
        content_opening="<|channel|>final<|message|>",
        reasoning=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        marks=("<|channel|>",),
    ),
    "kimi-k2": CallForm(
        families="Kimi K2",
        opening="<|tool_calls_section_begin|>",
        before_name="<|tool_call_begin|>functions.",
        after_name=f":{NUMBER}<|tool_call_argument_begin|>",
        after_arguments="<|tool_call_end|>",
        closing="<|tool_calls_section_end|>",
        trigger="<|tool_calls_section_begin|>",
        call_id="functions.{name}:{number}",
        marks=("<|tool_calls_section_begin|>",),
    ),
    "deepseek-v3": CallForm(
        families="DeepSeek V3 and R1",
        opening="<｜tool▁calls▁begin｜>",
        before_name="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        after_name="\n```json\n",
        after_arguments="\n```<｜tool▁call▁end｜>",
        separator="\n",
        closing="<｜tool▁calls▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
        marks=("```json",),
    ),
    "deepseek-v3.1": CallForm(
        families="DeepSeek V3.1 and later",
        opening="<｜tool▁calls▁begin｜>",
        before_name="<｜tool▁call▁begin｜>",
        after_name="<｜tool▁sep｜>",
        after_arguments="<｜tool▁call▁end｜>",
        closing="<｜tool▁calls▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
        marks=("<｜tool▁calls▁begin｜>",),
    ),
    "mistral-args": CallForm(
        families="Mistral Small 3.2, Devstral and Magistral",
        before_name="[TOOL_CALLS]",
        after_name="[ARGS]",
        after_arguments="",
        trigger="[TOOL_CALLS]",
        call_id="{number:09}",
        marks=("[ARGS]",),
    ),
    "mistral": CallForm(
        families="Mistral 7B v0.3, Nemo, Small 3.1 and Large 2",
        opening="[TOOL_CALLS] [",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]",
        trigger="[TOOL_CALLS]",
        call_id="{number:09}",
        id_after_arguments=True,
        marks=("[TOOL_CALLS]",),
    ),
    "cohere-text": CallForm(
        families="Command A+ and North",
        opening="<|START_ACTION|>[\n\n    ",
        before_name=_COHERE_NAME,
        after_name='", "parameters": ',
        after_arguments="}",
        separator=",\n\n    ",
        closing="\n\n]<|END_ACTION|>",
        trigger="<|START_ACTION|>",
        content_opening="<|START_TEXT|>",
        content_closing="<|END_TEXT|>",
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        marks=("<|START_TEXT|>",),
    ),
    "cohere": CallForm(
        families="Command R7B, Command A, Reasoning and Vision",
        opening="<|START_ACTION|>[\n    ",
        before_name=_COHERE_NAME,
        after_name='", "parameters": ',
        after_arguments="}",
        separator=",\n    ",
        closing="\n]<|END_ACTION|>",
        trigger="<|START_ACTION|>",
        content_opening="<|START_RESPONSE|>",
        content_closing="<|END_RESPONSE|>",
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        marks=("<|START_ACTION|>", "<|START_RESPONSE|>"),
    ),
    "glm-4.7": CallForm(
        families="GLM 4.7 and later",
        before_name="<tool_call>",
        after_name="",
        after_arguments="</tool_call>",
        trigger="<tool_call>",
        arguments="tags",
        tags=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        marks=("</arg_key><arg_value>",),
    ),
    "glm": CallForm(
        families="GLM 4.5 and 4.6",
        before_name="<tool_call>",
        after_name="\n",
        after_arguments="</tool_call>",
        separator="\n",
        trigger="<tool_call>",
        arguments="tags",
        tags=("<arg_key>", "</arg_key>\n", "<arg_value>", "</arg_value>\n"),
        marks=("<arg_key>",),
    ),
    "minimax-m2": CallForm(
        families="MiniMax M2",
        opening="<minimax:tool_call>\n",
        before_name='<invoke name="',
        after_name='">\n',
        after_arguments="</invoke>",
        separator="\n",
        closing="\n</minimax:tool_call>",
        trigger="<minimax:tool_call>",
        arguments="tags",
        tags=('<parameter name="', '">', "", "</parameter>\n"),
        marks=("<minimax:tool_call>",),
    ),
    "seed-oss": CallForm(
        families="Seed-OSS",
        before_name="<seed:tool_call>\n<function=",
        after_name=">\n",
        after_arguments="</function>\n</seed:tool_call>",
        separator="\n",
        trigger="<seed:tool_call>",
        arguments="tags",
        tags=("<parameter=", ">", "", "</parameter>\n"),
        python_constants=True,
        marks=("<seed:tool_call>",),
    ),
    "qwen3-coder": CallForm(
        families="Qwen3 Coder",
        before_name="<tool_call>\n<function=",
        after_name=">\n",
        after_arguments="</function>\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
        arguments="tags",
        tags=("<parameter=", ">\n", "", "\n</parameter>\n"),
        python_constants=True,
        marks=("<function=",),
    ),
    "llama-3": CallForm(
        families="Llama 3.1 to 3.3",
        before_name='{"name": "',
        after_name='", "parameters": ',
        after_arguments="}",
        trigger='{"name": "',
        parallel=False,
        marks=("<|python_tag|>", '"parameters": dictionary'),
    ),
    "phi-4-functools": CallForm(
        families="Phi-4 mini with vLLM's chat template",
        opening="functools[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]",
        trigger="functools[",
        marks=("functools[",),
    ),
    "phi-4-single": CallForm(
        families="Phi-4 mini with llama.cpp's chat template",
        before_name='<|tool_call|>{"name": "',
        after_name='", "arguments": ',
        after_arguments="}<|/tool_call|>",
        trigger="<|tool_call|>",
        marks=('<|tool_call|>{"name"',),
    ),
    "phi-4": CallForm(
        families="Phi-4 mini",
        opening="<|tool_call|>[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]<|/tool_call|>",
        trigger="<|tool_call|>",
        marks=("<|/tool_call|>", "<|/tool|>"),
    ),
    "granite": CallForm(
        families="Granite 3",
        opening="<|tool_call|>[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]",
        trigger="<|tool_call|>",
        marks=("<|tool_call|>",),
    ),
    "nemotron": CallForm(
        families="Nemotron Nano 2 and Llama Nemotron",
        opening="<TOOLCALL>[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator=", ",
        closing="]</TOOLCALL>",
        trigger="<TOOLCALL>",
        marks=("<TOOLCALL>",),
    ),
    "minimax": CallForm(
        families="MiniMax M1 and Jamba",
        opening="<tool_calls>\n",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        separator="\n",
        closing="\n</tool_calls>",
        trigger="<tool_calls>",
        marks=("<tool_calls>",),
    ),
    "hermes": CallForm(
        families="Qwen 2.5 and 3, Hermes 2 and 3, Granite 4, and models that were not trained to call functions",
        before_name='<tool_call>\n{"name": "',
        after_name='", "arguments": ',
        after_arguments="}\n</tool_call>",
        separator="\n",
        trigger="<tool_call>",
        marks=("<tool_call>",),
    ),
}


def choose_form(template: str) -> CallForm:
    """Return the form of a model by its chat template, an empty text if it has none."""
    return next((form for form in FORMS.values() if any(mark in template for mark in form.marks)), FORMS["hermes"])
