"""What an error says -> how to mend it, for messages that many operators share, where whoever raised it gave no hint.

    hint_for("reshape: f32[2, 3] has 6 elements, [4, 2] has 8")     # "sizes must multiply to ..."
"""

from __future__ import annotations

import re
from functools import lru_cache

# Part of the message -> the hint.  The first that fits is taken.
HINTS = (
    (r"inner sizes differ", "the last size of the first must be the size before the last of the second: "
                            "look at both shapes, or transpose one with x.mT"),
    (r"\bhas \d+ elements, \[.*\] has \d+|do not divide into \[",
     "sizes must multiply to the number of elements; -1 stands for the one that follows from the others"),
    (r"names an axis twice", "name each axis once, as in x.permute((1, 0))"),
    (r"has size \d+, not 1", "only axes of size 1 can be left out; x[0] or x.sum(axis=0) take one of larger size away"),
    (r"differ in more than axis|differ in shape", "reshape, pad or cut them first, so that all other sizes are equal"),
    (r"no tensors were given", "give a list of at least one tensor"),
    (r"einsum: the axis", "one letter stands for one size: give the two axes other letters, or transpose an operand"),
    (r"einsum: the output names", "each letter behind -> stands before it too"),
    (r"a size must be an integer|must be a size, not", "give a whole number, as in int(n) or n // 2"),
    (r"a size must not be negative", "sizes count elements: give 0 or more"),
    (r"is out of range for axis \d+ of size (\d+)", "indices run from -size to size - 1"),
    (r"the key has \d+ indices", "leave out what is too much, or add axes first with x[:, None]"),
    (r"an index must be an integer", "use int(i) for a number, and a mask or tensor of integers for several"),
    (r"indices must be integers|must hold class indices", "convert them: i.long()"),
    (r"the last size of x .* must be the last of weight", "the layer's in_features must be the last size of its input"),
    (r"is longer than the padded input", "give a smaller window, or padding=, or a larger input"),
    (r"the last sizes of .* are not", "the norm must be made for the last sizes of its input"),
    (r"channels, a vector for them is", "num_features must be the size of axis 1 of the input"),
    (r"must be a probability|is not a probability", "give a number from 0 to 1"),
    (r"need class indices of shape", "one class an example: the target has the shape of the scores without axis 1"),
    (r"only floating and complex tensors have gradients", "make it of floats: dtype=tn.float32"),
    (r"needs exactly one element", "choose one, as in x[0].item(), or use x.tolist() for all"),
    (r"a scalar tensor has no length", "x.reshape(1) has one axis; x.item() is the number"),
    (r"expected a tensor, an array or a number, not (list|tuple)", "make a tensor of it: tn.tensor(...)"),
    (r"expected a tensor, an array or a number, not str", "convert text first, as in float(text)"),
    (r"positional arguments were given", "pass the others by keyword; help() of the function lists them"),
    (r"nested lists are ragged", "rows must have one length: pad them, as with nn.utils.rnn.pad_sequence"),
    (r"step must not be 0", "give a step that leads from start to stop"),
    (r"topk: k=", "k is at most the size of the axis: look at axis="),
    (r"is empty, there is no element", "ask x.shape for 0 first, or concatenate a value that stands for none"),
    (r"there is no integer from", "the first bound is included, the second is not: give low < high"),
    (r"is no square matrix", "give a matrix with as many rows as columns; tn.linalg.pinv and lstsq take others"),
    (r"and the right-hand side .* do not fit", "the right-hand side needs as many rows as the matrix"),
    (r"must not be negative, got", "give 0 or more"),
    (r"the state does not fit", "load into a model of the same sizes, or leave these names out and pass strict=False"),
    (r"^assign: a tensor", "assign keeps type and shape: reshape the value, or make a new tensor"),
    (r"is not \[N, C, \.\.\.\]", "an image batch is [N, C, H, W]: add the axes that are missing with x[None]"),
    (r"has no attribute", "dir() of it lists what there is"),
)


@lru_cache(64)      # a loop that catches errors asks for the same one
def hint_for(what: str) -> str | None:
    """How to mend what a message says, where that is known."""
    return next((hint for pattern, hint in HINTS if re.search(pattern, what)), None)
