"""constrain under the name of exllamav2: programs written for exllamav2 0.3.2 run without being changed.

Nothing is installed unless it is asked for, by :func:`install` or by ``python -m constrain.compat.exllamav2 SCRIPT``.
Whatever differs between the library that such programs know and constrain itself lives in this package.
"""

from constrain.compat.exllamav2.alias import install, uninstall

__all__ = ["install", "uninstall"]
