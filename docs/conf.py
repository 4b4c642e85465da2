"""Sphinx settings. `make docs` builds docs/ into docs/_build and treats every warning as an error."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from generate_operators import write_pages

project = "Tenon"
author = "the Tenon developers"
copyright = f"2026, {author}"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "The computational graph, from Python to machine code", "fixed_sidebar": True}
nitpicky = True

write_pages(Path(__file__).parent / "api")
