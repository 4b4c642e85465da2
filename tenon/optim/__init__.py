"""Optimizers, schedules of the learning rate, and limits on gradients."""

from tenon.optim.adam import Adam as Adam
from tenon.optim.adam import Adamax as Adamax
from tenon.optim.adam import AdamW as AdamW
from tenon.optim.adam import NAdam as NAdam
from tenon.optim.clipping import clip_grad_norm as clip_grad_norm
from tenon.optim.clipping import clip_grad_value as clip_grad_value
from tenon.optim.lr_scheduler import ConstantLR as ConstantLR
from tenon.optim.lr_scheduler import CosineAnnealingLR as CosineAnnealingLR
from tenon.optim.lr_scheduler import ExponentialLR as ExponentialLR
from tenon.optim.lr_scheduler import LambdaLR as LambdaLR
from tenon.optim.lr_scheduler import LinearLR as LinearLR
from tenon.optim.lr_scheduler import MultiStepLR as MultiStepLR
from tenon.optim.lr_scheduler import OneCycleLR as OneCycleLR
from tenon.optim.lr_scheduler import PolynomialLR as PolynomialLR
from tenon.optim.lr_scheduler import ReduceLROnPlateau as ReduceLROnPlateau
from tenon.optim.lr_scheduler import Schedule as Schedule
from tenon.optim.lr_scheduler import SequentialLR as SequentialLR
from tenon.optim.lr_scheduler import StepLR as StepLR
from tenon.optim.lr_scheduler import WarmupCosineLR as WarmupCosineLR
from tenon.optim.optimizer import Group as Group
from tenon.optim.optimizer import Optimizer as Optimizer
from tenon.optim.scaled import Adadelta as Adadelta
from tenon.optim.scaled import Adagrad as Adagrad
from tenon.optim.scaled import Lion as Lion
from tenon.optim.scaled import RMSprop as RMSprop
from tenon.optim.sgd import SGD as SGD
