"""Sphinx settings. `make docs` builds docs/ into docs/_build and treats every warning as an error."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import generate_api
import generate_operators
from render import write_pages

project = "Tenon"
author = "the Tenon developers"
copyright = f"2026, {author}"
extensions = ["myst_parser"]
myst_heading_anchors = 2
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "The computational graph, from Python to machine code", "fixed_sidebar": True}
nitpicky = True

write_pages(HERE / "api", generate_api.pages())
write_pages(HERE / "api" / "operators", generate_operators.pages())
