"""Optimizers, schedules of the learning rate, and limits on gradients."""

from tenon.optim.adam import Adam, Adamax, AdamW
from tenon.optim.optimizer import Group, Optimizer
from tenon.optim.sgd import SGD

__all__ = ["Adam", "AdamW", "Adamax", "Group", "Optimizer", "SGD"]
