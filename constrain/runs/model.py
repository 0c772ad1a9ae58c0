"""The model of a run, which is loaded only if there is something to extract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrain.extract import Calibration
    from constrain.extract.prompts.form import PromptForm
    from constrain.tokenizer import ExLlamaV2Tokenizer


@dataclass(frozen=True)
class LazyModel:
    """The parts of a model that the keys of a run depend on, and how to load the rest.

    Attributes:
        folder: folder of the model.
        tokenizer: its tokenizer.
        form: the form of its prompts.
        load: returns the :class:`constrain.LLM`, or something with its method ``extract_many``.
        calibration: makes the probabilities of values the shares of right values, and doubtful values null.
    """

    folder: str
    tokenizer: ExLlamaV2Tokenizer
    form: PromptForm
    load: Callable[[], Any]
    calibration: Calibration | None = None

    @classmethod
    def of(cls, llm: Any) -> LazyModel:
        """Return the model of an :class:`constrain.LLM`, which is loaded already."""
        extractor = llm.extractor
        return cls(llm.model.config.model_dir, llm.tokenizer, extractor.form, lambda: llm, extractor.calibration)

    @classmethod
    def open(cls, folder: str | Path, load: Callable[[], Any], calibration: Calibration | None = None) -> LazyModel:
        """Read the tokenizer of a model folder.

        Raises:
            ModelError: the folder cannot be used.
            ArgumentError: the calibration in the folder cannot be read.
        """
        from constrain.extract import Calibration
        from constrain.extract.prompts.choose import choose_form
        from constrain.model.token_config import TokenConfig
        from constrain.tokenizer import ExLlamaV2Tokenizer

        tokenizer = ExLlamaV2Tokenizer(TokenConfig.of_folder(folder))
        return cls(str(folder), tokenizer, choose_form(tokenizer), load, Calibration.of_model(folder, calibration))
