"""Looking at tensors, graphs and programs: clients of the stages, never used by them."""
