"""Types of fields whose values are traced to the document: :class:`Quote` and :data:`Evidence`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from constrain.extract.evidence import EVIDENCE, quote_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T")

#: Default ``max_length`` of quotes: a few sentences. Without a limit, a weak model may copy the whole document.
MAX_QUOTE = 500


@dataclass(frozen=True)
class _Verbatim:
    """Marks a string as a quote."""

    whole_words: bool = False

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        most = max(MAX_QUOTE, schema.get("minLength", 0))
        return {**quote_schema(most, self.whole_words), **schema}


@dataclass(frozen=True)
class _Evidence:
    """Marks a value that comes with a quote as its evidence."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), EVIDENCE: True}


if TYPE_CHECKING:
    Quote: TypeAlias = str
else:

    class Quote:
        """A string that is copied word for word from the document.

        As the type of a field, ``name: Quote``, its value is a ``str``, and ``Extraction.spans`` has its place. A quote
        has 1 to 500 characters; ``Annotated[Quote, Field(max_length=2000)]`` sets another maximum. As an annotation,
        ``Annotated[str, Quote(whole_words=True)]``, it takes options.

        Args:
            whole_words: whether the quote must begin and end at borders of words, see
                :func:`~constrain.engine.words.word_borders`.
        """

        def __new__(cls, *, whole_words: bool = False) -> _Verbatim:
            return _Verbatim(whole_words)

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
            return handler.generate_schema(Annotated[str, _Verbatim()])


#: A value with evidence: ``due: Evidence[date]`` is a ``date``, for which the model first writes a quote that shows it.
#: ``Extraction.spans`` has the place of the quote. The quote consists of up to 200 characters of whole words.
Evidence: TypeAlias = Annotated[T, _Evidence()]
