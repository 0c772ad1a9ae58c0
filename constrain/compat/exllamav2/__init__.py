"""An alias of constrain under the name of exllamav2, so that programs written for exllamav2 0.3.2 run unchanged.

The alias is only active after :func:`install`, or in ``python -m constrain.compat.exllamav2 SCRIPT``. Differences
between the interfaces of exllamav2 and constrain are implemented in this package.
"""

from constrain.compat.exllamav2.alias import install, uninstall

__all__ = ["install", "uninstall"]
