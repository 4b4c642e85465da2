"""What a program does, step by step: kernels, their order, control flow, and the native function that runs steps."""
