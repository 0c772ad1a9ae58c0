"""Configuration of the site; ``make docs`` builds it into ``docs/_build/html``."""

from __future__ import annotations

import sys
from pathlib import Path

import constrain

sys.path.insert(0, str(Path(__file__).parent))

project = "constrain"
copyright = "constrain contributors"
release = constrain.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "click_help"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "constrain"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
