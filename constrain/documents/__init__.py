"""Documents: texts that records are extracted from, with their pages."""

from constrain.documents.document import Box, Document, Page

__all__ = ["Box", "Document", "Page"]
