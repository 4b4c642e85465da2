"""The data of a captured function -> one HTML file that needs nothing else: no network, no other file.

What is drawn stands in `page/`, plain files, joined here.  The data are JSON, compressed, as a text element.
"""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path

from tenon.debug.viewer.graph_data import Data

FOLDER = Path(__file__).parent / "page"
SCRIPTS = ("vendor/dagre.min.js", "model.js", "tree.js", "layout.js", "graph.js", "source.js", "charts.js", "panels.js",
           "outline.js", "search.js", "code.js", "ways.js", "colours.js", "words.js", "controls.js",
           "main.js")
LICENSE = "vendor/dagre.LICENSE.txt"


def page_of(data: Data) -> str:
    """The page, as text."""
    packed = base64.b64encode(gzip.compress(json.dumps(data).encode(), 6, mtime=0)).decode()
    before, after = _joined()
    return f"{before}{packed}{after}"


@cache
def _joined() -> tuple[str, str]:
    """What stands before the data, and behind them."""
    names = (*SCRIPTS, "template.html", "style.css", LICENSE)
    texts = {name: (FOLDER / name).read_text(encoding="utf-8") for name in names}
    scripts = "".join(f"<script>\n{texts[name]}</script>\n" for name in SCRIPTS)
    page = texts["template.html"].replace("/*STYLE*/", texts["style.css"]).replace(
        "/*SCRIPTS*/", f"<!-- dagre:\n{texts[LICENSE]}-->\n{scripts}")
    before, _, after = page.partition("/*DATA*/")
    return before, after
