"""LLVM IR text and machine code of any kind: builders, optimising, linking, caches, and the threads that compile."""
