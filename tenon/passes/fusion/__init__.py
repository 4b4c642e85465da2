"""Which operators become one kernel: groups, what they gain, and what is known of a kernel before it is lowered."""
