"""Layers, losses and what they are built of: `nn.Module`, `nn.Parameter`, `nn.functional`, `nn.init`.

Layers, their arguments and the names of their parameters are PyTorch's, so that weights can be exchanged.
"""

from typing import Any as _Any

from tenon.migration_hints import NN as _NAMES
from tenon.migration_hints import missing as _missing
from tenon.nn import functional as functional
from tenon.nn import init as init
from tenon.nn import modules as modules
from tenon.nn import modules as parameter
from tenon.nn import parallel as parallel
from tenon.nn import utils as utils
from tenon.nn.activations import *  # noqa: F403
from tenon.nn.adaptive_softmax import *  # noqa: F403
from tenon.nn.attention import *  # noqa: F403
from tenon.nn.buffer import Buffer as Buffer
from tenon.nn.containers import *  # noqa: F403
from tenon.nn.convolution import *  # noqa: F403
from tenon.nn.convolution import _Convolution as _ConvNd
from tenon.nn.ctc import *  # noqa: F403
from tenon.nn.dropout import *  # noqa: F403
from tenon.nn.embedding import *  # noqa: F403
from tenon.nn.fractional_pooling import *  # noqa: F403
from tenon.nn.lazy import *  # noqa: F403
from tenon.nn.linear import *  # noqa: F403
from tenon.nn.losses import *  # noqa: F403
from tenon.nn.losses import _Loss as _Loss
from tenon.nn.losses import _WeightedLoss as _WeightedLoss
from tenon.nn.module import Module as Module
from tenon.nn.module import Parameter as Parameter
from tenon.nn.normalization import *  # noqa: F403
from tenon.nn.normalization import _BatchNorm as _BatchNorm
from tenon.nn.parallel import DataParallel as DataParallel
from tenon.nn.pooling import *  # noqa: F403
from tenon.nn.quantized import *  # noqa: F403
from tenon.nn.recurrent import *  # noqa: F403
from tenon.nn.reshaping import *  # noqa: F403
from tenon.nn.transformer import *  # noqa: F403
from tenon.ops.losses import cross_entropy as cross_entropy


def __getattr__(name: str) -> _Any:             # where type checkers find classes that are made in a loop: MaxPool1d
    raise _missing("tenon.nn", name, _NAMES)
