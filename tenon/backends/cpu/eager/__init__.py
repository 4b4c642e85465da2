"""Machine code for eager calls: what Python and NumPy do around NumPy's inner loops, and backward, without either.

`calls` operators as Python builtins, `tape` the way back through a tape of them, `arrays` and `objects` what both look
at and make, `ufuncs` where NumPy's loops are.  `tenon/eager/native.py` says when they are put in place.
"""
