"""User functions rewritten so that control flow on tensors becomes part of the graph, and all other stays Python's.

Every statement stays in its place, in its own frame and at its own line; nothing is moved into a function of its own.
An `if` becomes a loop that is gone through once where the condition is a Python value, and twice, once for each arm,
where it is a tensor:

    if test:                 for _tenon_1 in _tenon.branch(test) or _tenon.fork(_tenon.locals(), ("x",)):
        x = a                    try:
    else:                            if _tenon_1.taken: x = a
        x = b                        else: x = b
                                 except _tenon_1.caught: _tenon_1.raised()
                                 if _tenon_1.data: (x,) = _tenon_1.leave(_tenon.locals()) ...

What an arm changed (variables, attributes, containers, elements of tensors) is undone before the other arm runs; then
both outcomes are merged, place by place, leaf by leaf, into the results of one `cond`.  Loops are gone through until
the state at the end of an iteration has the structure of that at its beginning, and become one `while_loop`.  Where a
merge has no one value (a tensor or None, bound or not) it is a `UnionValue`, which is resolved where it is read.

An exception under a condition becomes a flag of the graph: where it comes out true, what the graph did is dropped, and
the call runs eagerly, which raises it as Python does.

    source -> jumps -> branches, loops -> expressions -> calls     one visitor each, put together in `rewrite`
    runtime: fork, loop, state, merge, choice                      what the rewritten code calls
"""
