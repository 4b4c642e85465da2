"""Loops -> machine code for this processor: one template for contractions, schedules for convolution and attention."""
