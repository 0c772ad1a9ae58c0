"""The page: its template, with style, script and data inside, so that it is one file."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path

from constrain import __version__

#: Style sheets and modules in the order of the page. Modules share one scope there: their names are distinct.
STYLES = ("theme", "controls", "layout", "documents", "source", "record")
MODULES = (
    *("dom", "json", "data", "record", "colours", "highlight", "theme", "keys", "corrections", "gold"),
    *("document-list", "filters", "text-view", "source-view", "editor", "value-details", "record-view", "main"),
)

_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
#: The tag by which pages are recognised, and the bytes within which it is.
_GENERATOR, _HEAD_BYTES = b'<meta name="generator" content="constrain ', 1024


def render_page(name: str, index: str, blocks: str) -> str:
    """Return the page.

    Args:
        name: name of the file of records.
        index: element of the index, which the script needs at once.
        blocks: elements of all other data, which come last, so that the first view does not wait for them.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    style, script = page_style(), page_script()
    return (
        Environment(autoescape=True)
        .from_string(_asset("page.html"))
        .render(
            name=name,
            version=__version__,
            style=Markup(style),
            script=Markup(script),
            style_hash=csp_hash(style),
            script_hash=csp_hash(script),
            index=Markup(index),
            blocks=Markup(blocks),
        )
    )


def is_page(path: Path) -> bool:
    """Return whether a file is a page of constrain, of a review or an evaluation."""
    try:
        with path.open("rb") as file:
            return _GENERATOR in file.read(_HEAD_BYTES)
    except OSError:
        return False


def page_style() -> str:
    """Return the style sheets as one."""
    return "\n".join(_asset(f"{name}.css") for name in STYLES)


def theme_style() -> str:
    """Return the style sheet of colours and type, which pages of other commands share."""
    return _asset("theme.css")


def page_script() -> str:
    """Return the modules as one script: what is imported and exported is in scope there."""
    modules = (_EXPORT.sub("", _IMPORT.sub("", _asset(f"{name}.js"))) for name in MODULES)
    return '(() => {\n"use strict";\n' + "\n".join(modules) + "})();\n"


def _asset(name: str) -> str:
    return (files("constrain.review") / "assets" / name).read_text(encoding="utf-8")


def csp_hash(content: str) -> str:
    """Return the hash by which the content security policy of the page allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
