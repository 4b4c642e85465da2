"""Functions of images with their channels first -> the same with theirs last, as networks in use have them inside."""

import numpy as np

import tenon as tn


def facing(function):
    """The function of images with their channels last, to another one: nothing is permuted for the convolutions inside,
    which have theirs last therefore, however small they are."""
    def outside(*arrays):
        y = function(*(tn.permute(x, (0, x.ndim - 1, *range(1, x.ndim - 1))) for x in arrays))
        return tn.permute(y, (0, *range(2, y.ndim), 1))
    return outside


def turned(array):
    """An array with its channels last."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))
