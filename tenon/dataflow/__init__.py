"""The dataflow form: a graph whose control flow is five primitives, and the executor of tokens that runs it."""
