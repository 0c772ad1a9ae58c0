"""Documents: texts and images that records are extracted from, with their pages, and how they are read and divided.

The libraries that read PDF, DOCX, HTML and Parquet are those of ``pip install 'constrain-lm[documents]'``.
"""

from constrain.documents.document import Box, Document, DocumentLike, Page
from constrain.documents.images import decode_image, load_image
from constrain.documents.inputs import Source, inputs
from constrain.documents.parts import Part, PartKind, part_of, parts
from constrain.documents.read import read, read_bytes

__all__ = [
    "Box",
    "Document",
    "DocumentLike",
    "Page",
    "Part",
    "PartKind",
    "Source",
    "decode_image",
    "inputs",
    "load_image",
    "part_of",
    "parts",
    "read",
    "read_bytes",
]
