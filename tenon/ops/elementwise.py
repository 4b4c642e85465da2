"""Every elementwise operator under one name; each is defined in the file of its family."""

from tenon.ops.arithmetic import *  # noqa: F403
from tenon.ops.comparison import *  # noqa: F403
from tenon.ops.complex_parts import *  # noqa: F403
from tenon.ops.exponential import *  # noqa: F403
from tenon.ops.rounding import *  # noqa: F403
from tenon.ops.special import *  # noqa: F403
from tenon.ops.trigonometric import *  # noqa: F403
