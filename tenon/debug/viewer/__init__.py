"""A captured function as one offline page: data in Python, drawing in plain JavaScript, joined when it is written."""

from tenon.debug.viewer.view import View, view

__all__ = ["View", "view"]
