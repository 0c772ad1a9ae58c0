"""SGLang's interface for the tests.

Where SGLang is installed, its own files are loaded, without the packages around them, which need a GPU; else there are
stand-ins for the three classes that the plugin derives from.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SPEC = find_spec("sglang")
PACKAGES = ["sglang", "sglang.srt", "sglang.srt.constrained", "sglang.srt.parser", "sglang.srt.utils"]


class BaseGrammarObject:
    def __init__(self) -> None:
        self.finished, self.grammar_stats, self.current_token = False, None, None

    def maybe_init_reasoning(self, reasoning: bool) -> None: ...


class BaseGrammarBackend:
    def __init__(self) -> None:
        self.cache: dict[Any, BaseGrammarObject] = {}


class InvalidGrammarObject(BaseGrammarObject):
    def __init__(self, error_message: str = "") -> None:
        super().__init__()
        self.error_message = error_message


class ReasoningParser:
    """Stands for SGLang's, with a detector of ``</think>``."""

    def __init__(self, model_type: str, stream_reasoning: bool, tokenizer: Any) -> None:
        self.detector = SimpleNamespace(
            think_end_token="</think>",
            think_excluded_tokens=None,
            get_think_end_token_ids=lambda tokenizer: tokenizer.encode("</think>", add_special_tokens=False),
            get_answer_frame=lambda: None,
        )


def add_module(name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def add_packages(folder: Path) -> None:
    for name in PACKAGES:
        add_module(name, __path__=[str(folder.joinpath(*name.split(".")[1:]))])


def nothing() -> None: ...


if SPEC is not None and SPEC.origin:
    add_packages(Path(SPEC.origin).parent)
    max_think_tokens = SimpleNamespace(get=lambda: -1)
    add_module("sglang.srt.environ", envs=SimpleNamespace(SGLANG_MAX_THINK_TOKENS=max_think_tokens))
    add_module("sglang.srt.server_args", ServerArgs=object)
    add_module("sglang.srt.parser.reasoning_parser", ReasoningParser=ReasoningParser)
    add_module("sglang.srt.parser.response_template", ResponseTemplateReasoningDetector=type("Detector", (), {}))
    context = dict.fromkeys(["get_context", "get_exec", "get_resources", "get_serving"], nothing)
    add_module("sglang.srt.runtime_context", **context)
else:
    add_packages(Path("missing"))
    add_module(
        "sglang.srt.constrained.base_grammar_backend",
        BaseGrammarObject=BaseGrammarObject,
        BaseGrammarBackend=BaseGrammarBackend,
        InvalidGrammarObject=InvalidGrammarObject,
    )
    add_module("sglang.srt.runtime_context", get_serving=nothing)
