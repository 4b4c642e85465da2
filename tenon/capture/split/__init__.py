"""Functions that one graph cannot hold: what comes before and after such a statement stays compiled."""
