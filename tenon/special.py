"""The namespace `tn.special`: special functions by PyTorch's and SciPy's names; `tn` itself has nearly all of them."""

from tenon.ops.activations import log_softmax, softmax
from tenon.ops.activations import sigmoid as expit
from tenon.ops.exponential import exp2, expm1, log1p, xlogy
from tenon.ops.incomplete_gamma import gammainc, gammaincc
from tenon.ops.reduction import logsumexp
from tenon.ops.rounding import round_ as round
from tenon.ops.special_functions import (
    bessel_j0,
    bessel_j1,
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    polygamma,
    xlog1py,
)
from tenon.ops.special_functions import lgamma as gammaln
from tenon.ops.special_functions import mvlgamma as multigammaln
from tenon.ops.trigonometric import sinc

__all__ = ["bessel_j0", "bessel_j1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
           "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit",
           "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "multigammaln", "ndtr", "ndtri", "polygamma", "psi",
           "round", "sinc", "softmax", "xlog1py", "xlogy"]

psi, modified_bessel_i0, modified_bessel_i1 = digamma, i0, i1
