"""One graph -> graphs of several devices: which node is where, the cut, its proof, and the order on each device."""
