"""What speaks to the interpreter: layouts of its objects, builtins made of machine code, guards, calls of programs."""
