"""All schedules of the learning rate, under the name that PyTorch has for them: `optim.lr_scheduler.StepLR`."""

from tenon.optim.cyclic_lr import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from tenon.optim.cyclic_lr import CyclicLR as CyclicLR
from tenon.optim.cyclic_lr import MultiplicativeLR as MultiplicativeLR
from tenon.optim.cyclic_lr import OneCycleLR as OneCycleLR
from tenon.optim.learning_rates import ChainedScheduler as ChainedScheduler
from tenon.optim.learning_rates import ConstantLR as ConstantLR
from tenon.optim.learning_rates import CosineAnnealingLR as CosineAnnealingLR
from tenon.optim.learning_rates import ExponentialLR as ExponentialLR
from tenon.optim.learning_rates import LambdaLR as LambdaLR
from tenon.optim.learning_rates import LinearLR as LinearLR
from tenon.optim.learning_rates import MultiStepLR as MultiStepLR
from tenon.optim.learning_rates import PolynomialLR as PolynomialLR
from tenon.optim.learning_rates import ReduceLROnPlateau as ReduceLROnPlateau
from tenon.optim.learning_rates import Schedule as Schedule
from tenon.optim.learning_rates import SequentialLR as SequentialLR
from tenon.optim.learning_rates import StepLR as StepLR
from tenon.optim.learning_rates import WarmupCosineLR as WarmupCosineLR

LRScheduler = _LRScheduler = Schedule
