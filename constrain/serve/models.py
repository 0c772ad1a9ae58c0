"""The models of a server, and their adapters, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import time

from constrain.engine import Vocabulary
from constrain.errors import ArgumentError, GenerationError
from constrain.extract.prompts.thinking import ThinkingMarks, thinking_marks
from constrain.filters.vocabularies import vocabulary_of
from constrain.llm import LLM
from constrain.model import ExLlamaV2Lora
from constrain.serve.errors import APIError
from constrain.serve.tools import FORMS, CallForm, choose_form
from constrain.tokenizer import ExLlamaV2Tokenizer


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model under a name, with an adapter or without.

    Attributes:
        name: by which clients know it.
        llm: the model.
        loras: adapters to apply.
        form: how it writes calls of functions.
        parent: name of the model that an adapter belongs to.
        created: when the server was started, in seconds since 1970.
    """

    name: str
    llm: LLM
    form: CallForm
    loras: tuple[ExLlamaV2Lora, ...] = ()
    parent: str | None = None
    created: int = 0

    @property
    def tokenizer(self) -> ExLlamaV2Tokenizer:
        """Its tokenizer."""
        return self.llm.tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its vocabulary."""
        return vocabulary_of(self.llm.tokenizer)

    @cached_property
    def thinking_marks(self) -> ThinkingMarks | None:
        """The tokens around its thoughts, if there is one for each side."""
        return thinking_marks(self.llm.tokenizer)

    @cached_property
    def _longest_token(self) -> int:
        """Number of bytes of the longest token."""
        names = (len(name.encode()) for name in self.vocabulary.special_tokens)
        return max(*map(len, map(self.vocabulary.token_bytes, range(self.vocabulary.size))), *names, 1)

    def check_length(self, length: int) -> None:
        """Raise :class:`GenerationError` for a prompt of so many bytes that the context cannot hold them.

        Encoding takes long for a long text, so that this is asked before. ``length`` may be less than there is.
        """
        context = self.llm.runtime.max_seq_len
        if length > context * self._longest_token:
            raise GenerationError(
                f"the prompt has at least {length} bytes, which do not fit in the {context} tokens of the context: "
                "shorten the text, or load the model with a larger max_seq_len"
            )

    def token_text(self, token: int) -> str:
        """Return the text of a token; of a special token, its name."""
        return self.special_names.get(token) or self.vocabulary.token_bytes(token).decode(errors="replace")

    @cached_property
    def special_names(self) -> dict[int, str]:
        """Names of special tokens, by id."""
        return {token: name for name, token in self.vocabulary.special_tokens.items()}


class Models:
    """The models of a server.

    Attributes:
        by_name: all of them, the first one first.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, ServedModel] = {}
        self._created = int(time())

    @classmethod
    def of(cls, llms: Mapping[str, LLM], tool_form: str | None = None) -> Models:
        """Return models without adapters; arguments as for :meth:`add`."""
        models = cls()
        for name, llm in llms.items():
            models.add(name, llm, tool_form)
        return models

    def add(self, name: str, llm: LLM, tool_form: str | None = None) -> None:
        """Add a model.

        Args:
            name: by which clients know it.
            llm: the model.
            tool_form: how it writes calls of functions, a key of ``FORMS``; by default as its chat template says.

        Raises:
            ArgumentError: the name is taken, or there is no such form.
        """
        self._check_free(name)
        if tool_form is not None and tool_form not in FORMS:
            raise ArgumentError(f"there is no form of calls {tool_form!r}; there are {', '.join(sorted(FORMS))}")
        form = FORMS[tool_form] if tool_form else choose_form(_template(llm.tokenizer))
        self.by_name[name] = ServedModel(name, llm, form, created=self._created)

    def add_lora(self, name: str, base: str, folder: str | Path) -> None:
        """Add a model with an adapter in the format of peft.

        Args:
            name: by which clients know it.
            base: name of the model that it belongs to.
            folder: folder of the adapter.

        Raises:
            ArgumentError: the name is taken, or there is no such model.
            ModelError: the adapter cannot be used.
        """
        self._check_free(name)
        if base not in self.by_name:
            raise ArgumentError(f"the adapter {name!r} is for the model {base!r}, which is not served")
        parent = self.by_name[base]
        lora = ExLlamaV2Lora.from_directory(parent.llm.model, str(folder))
        self.by_name[name] = ServedModel(name, parent.llm, parent.form, (lora,), base, self._created)

    def find(self, name: str) -> ServedModel:
        """Return the model of a name.

        Raises:
            APIError: there is none.
        """
        if name not in self.by_name:
            names = ", ".join(self.by_name)
            message = f"/model: there is no model {name!r}; this server has {names}"
            raise APIError(message, status=404, param="/model", code="model_not_found")
        return self.by_name[name]

    @property
    def llms(self) -> list[LLM]:
        """The models that are loaded."""
        return list(dict.fromkeys(model.llm for model in self.by_name.values()))

    def _check_free(self, name: str) -> None:
        if name in self.by_name:
            raise ArgumentError(f"two models are called {name!r}")


def _template(tokenizer: ExLlamaV2Tokenizer) -> str:
    """Return the sources of the chat templates of a model."""
    return "".join(template.source for template in tokenizer.chat_templates.values())
