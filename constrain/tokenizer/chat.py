"""Chat templates: Jinja programs of model folders that render messages as a prompt.

The program comes with the model, so it is not trusted: it runs in a sandbox, cannot change its arguments, and its time
and the sizes of texts are limited, see ``bounded_jinja.py``. Its variables and functions are those of ``transformers``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser

from constrain.errors import TokenizerError
from constrain.tokenizer.bounded_jinja import MAX_TEXT, BoundedEnvironment, bounded
from constrain.tokenizer.files import MAX_JSON_BYTES, read_json_object

MAX_PROMPT_CHARS = MAX_TEXT
"""Maximum length of the output of a template."""
TEMPLATES_FOLDER = "additional_chat_templates"
"""Folder of the templates of a model besides its default one."""


class _GenerationBlock(Extension):
    """``{% generation %}...{% endgeneration %}``, a mark for training around output of an assistant, without effect."""

    tags = {"generation"}  # noqa: RUF012 (a class variable of the base class)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(BoundedEnvironment):
    def __init__(self) -> None:
        extensions = ["jinja2.ext.loopcontrols", _GenerationBlock]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters["tojson"] = bounded("tojson", _to_json)
        self.globals |= {"raise_exception": _refuse, "strftime_now": _now}


class _Arguments(dict[str, Any]):
    """Arguments of a call: an object, which is joined to texts as JSON.

    Some templates, as DeepSeek's, take arguments as text.
    """

    def __str__(self) -> str:
        return str(_to_json(self))

    def __add__(self, after: str) -> str:
        return str(self) + after

    def __radd__(self, before: str) -> str:
        return before + str(self)


def _with_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message for a template, with :class:`_Arguments` in its calls."""
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_call(call) for call in message["tool_calls"]]}


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _call(call["function"])}
    arguments = call.get("arguments")
    return {**call, "arguments": _Arguments(arguments)} if isinstance(arguments, Mapping) else call


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: the Jinja program.
        origin: the file that it comes from, for messages.

    Raises:
        TokenizerError: it is not valid Jinja.
    """

    def __init__(self, source: str, origin: str = "chat template") -> None:
        self.source = source
        self._origin = origin
        try:
            self._template = _Environment().from_string(source)
        except TemplateError as cause:
            line = getattr(cause, "lineno", None)
            raise TokenizerError(
                f"{origin}: not a Jinja template: {cause}{f', line {line}' if line else ''}"
            ) from cause
        except RecursionError as cause:
            raise TokenizerError(f"{origin}: Jinja nested too deeply") from cause

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """Render a chat as text.

        Args:
            messages: each with ``role`` and ``content``, and other entries that the template uses.
            variables: further variables of the template.

        Raises:
            TokenizerError: the template refuses the messages, fails, runs for too long, or makes a text of more than
                ``MAX_PROMPT_CHARS``.
        """
        given = [_with_arguments(each) for each in messages]
        try:
            return BoundedEnvironment.run(lambda: self._joined(self._template.generate(messages=given, **variables)))
        except Exception as cause:  # a template may fail in any way that Python can
            problem = str(cause) or type(cause).__name__
            raise TokenizerError(f"{self._origin}: cannot render these messages: {problem}") from cause

    @staticmethod
    def _joined(written: Iterable[str]) -> str:
        parts, length = [], 0
        for part in written:
            parts.append(part)
            length += len(part)
            if length > MAX_PROMPT_CHARS:
                raise SecurityError(f"it writes more than {MAX_PROMPT_CHARS} characters")
        return "".join(parts)


def read_chat_templates(model_dir: Path, settings: Mapping[str, Any] | None) -> dict[str, ChatTemplate]:
    """Read the chat templates of a model folder, by name; one without a name is called ``default``.

    They are in ``chat_template.jinja`` and, by their names, in ``TEMPLATES_FOLDER``, or else in ``chat_template.json``
    or ``tokenizer_config.json``.
    """
    own = {"default": model_dir / "chat_template.jinja"}
    own |= {path.stem: path for path in sorted((model_dir / TEMPLATES_FOLDER).glob("*.jinja"))}
    if found := {name: path for name, path in own.items() if path.is_file()}:
        return {name: ChatTemplate(_read_text(path), str(path)) for name, path in found.items()}
    return _read_templates_of_json(model_dir, settings)


def _read_templates_of_json(model_dir: Path, settings: Mapping[str, Any] | None) -> dict[str, ChatTemplate]:
    path = model_dir / "chat_template.json"
    if path.is_file():
        found = read_json_object(path, TokenizerError).get("chat_template")
    else:
        path, found = model_dir / "tokenizer_config.json", (settings or {}).get("chat_template")
    if found is None:
        return {}
    entries = [{"name": "default", "template": found}] if isinstance(found, str) else found
    if not isinstance(entries, list) or not all(_is_named(entry) for entry in entries):
        raise TokenizerError(f"{path}: chat_template must be a text, or a list of objects with name and template")
    return {entry["name"]: ChatTemplate(entry["template"], str(path)) for entry in entries}


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template"))


def _read_text(path: Path) -> str:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise TokenizerError(f"{path}: larger than {MAX_JSON_BYTES} bytes, so not a template")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as cause:
        raise TokenizerError(f"{path}: not UTF-8 text ({cause})") from cause


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Serialise as JSON without Jinja's escapes for HTML, as in the training data of models."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
