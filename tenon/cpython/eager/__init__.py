"""Machine code for eager calls: what Python and NumPy do around NumPy's inner loops, and backward, without either.

`elementwise_calls` has operators as Python builtins, `backward_walk` the way back through a tape of them,
`ndarray_access` and `tensor_objects` what both look at and make, `ufunc_loops` where NumPy's loops are.
`tenon/eager/native_fast_path.py` says when they are put in place.
"""
