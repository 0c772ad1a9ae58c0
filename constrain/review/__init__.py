"""A page on which people look at records beside their sources, and correct them: one file that needs no network."""

from constrain.review.write import Review, write_review

__all__ = ["Review", "write_review"]
