"""Which functions a model may call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from constrain.engine import Vocabulary
from constrain.serve.errors import APIError
from constrain.serve.protocol import fields as protocol
from constrain.serve.protocol.custom import Definition
from constrain.serve.tools.custom import CustomText, schema_of

_OBJECT = {"type": "object"}


@dataclass(frozen=True)
class Function:
    """A function that the model may call, or a custom tool, which is one with a text as its only argument.

    Attributes:
        name: its name.
        schema: JSON Schema of its arguments.
        pointer: JSON pointer to that schema in the request.
        description: what it does, in words.
        custom: the text that it takes, if it is a custom tool.
    """

    name: str
    schema: Mapping[str, Any]
    pointer: str
    description: str = ""
    custom: CustomText | None = None

    @classmethod
    def of_custom(
        cls, name: str, description: str | None, given: Definition | None, pointer: str, vocabulary: Vocabulary
    ) -> Function:
        """Return the function in place of a custom tool.

        Args:
            name: of the tool.
            description: what it does, in words.
            given: form of the text that it takes; ``None``: any text.
            pointer: JSON pointer to the text of that form.
            vocabulary: of the model.

        Raises:
            APIError: the form is malformed.
        """
        custom = CustomText.of(given, pointer, vocabulary)
        return cls(name, schema_of(given), pointer, description or "", custom)

    @classmethod
    def of(cls, given: protocol.Function, pointer: str) -> Function:
        """Return the function of a request, without arguments if it has no schema of them.

        Args:
            given: the function.
            pointer: JSON pointer to the schema of its arguments.

        Raises:
            APIError: the schema excludes objects, which arguments are.
        """
        schema = given.parameters or {"properties": {}, "additionalProperties": False}
        types = schema.get("type", "object")
        if "object" not in (types if isinstance(types, list) else [types]):
            at = f"{pointer}/type"
            message = f"{at}: the arguments of a function are an object, not {types!r}"
            raise APIError(message, param=at, code="invalid_value")
        return cls(given.name, {**_OBJECT, **schema, **_OBJECT}, pointer, given.description or "")

    def for_template(self) -> dict[str, Any]:
        """Return it as chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolChoice:
    """The functions of a request, and whether and how often they are called.

    Attributes:
        functions: those that may be called.
        required: whether one has to be called.
        parallel: whether several calls may be made.
    """

    functions: tuple[Function, ...]
    required: bool = False
    parallel: bool = True

    @classmethod
    def of(
        cls,
        functions: tuple[Function, ...],
        choice: Literal["none", "auto", "required"] | None,
        named: Collection[tuple[str, bool]] | None,
        parallel: bool | None,
    ) -> ToolChoice | None:
        """Read the choice of a request; ``None`` if no function may be called.

        Args:
            functions: all functions of the request.
            choice: whether one has to be called.
            named: names of those that may be called, and whether each is a custom tool; ``None``: all.
            parallel: the field ``parallel_tool_calls``.

        Raises:
            APIError: there is no function to call, or two have one name.
        """
        known = [each.name for each in functions]
        if len(set(known)) < len(known):
            raise APIError("/tools: two tools have the same name", param="/tools", code="invalid_value")
        kinds = {each.name: each.custom is not None for each in functions}
        if unknown := [name for name, is_custom in named or () if kinds.get(name) is not is_custom]:
            what = "custom tool" if (unknown[0], True) in (named or ()) else "function"
            message = f"/tool_choice: there is no {what} {unknown[0]!r}"
            raise APIError(message, param="/tool_choice", code="invalid_value")
        if choice == "required" and not functions:
            raise APIError("/tool_choice: there are no tools", param="/tool_choice", code="invalid_value")
        if named is not None:
            functions = tuple(each for each in functions if (each.name, each.custom is not None) in named)
        if choice == "none" or not functions:
            return None
        return cls(functions, choice == "required", parallel is not False)
