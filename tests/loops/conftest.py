"""Helpers are imported as loops.toy and loops.compiled, never collected: operators may be defined only once."""

collect_ignore = ["toy.py", "compiled.py"]
