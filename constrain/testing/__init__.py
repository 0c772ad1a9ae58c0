"""For tests of schemas, grammars and filters: which texts a constraint takes, and what it makes a model write.

No model is needed, and for compiled grammars no torch.
"""

from constrain.testing.checks import MockModel, accepts, sample
from constrain.testing.vocabularies import byte_vocabulary, small_tokenizer, small_vocabulary

__all__ = ["MockModel", "accepts", "byte_vocabulary", "sample", "small_tokenizer", "small_vocabulary"]
