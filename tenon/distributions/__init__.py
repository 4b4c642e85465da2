"""Probability distributions under PyTorch's names: `sample`, `rsample`, `log_prob`, `entropy`, `kl_divergence`.

    policy = tn.distributions.Categorical(logits=net(state))
    action = policy.sample()
    loss = -(policy.log_prob(action) * reward).mean()

Parameters broadcast.  What they must satisfy is checked where their values are known: outside captured functions.
Outside the support of a distribution `log_prob` is -inf.
"""

from tenon.distributions import constraints as constraints
from tenon.distributions import transforms as transforms
from tenon.distributions.concrete import *  # noqa: F403
from tenon.distributions.constraint_registry import biject_to as biject_to
from tenon.distributions.constraint_registry import transform_to as transform_to
from tenon.distributions.distribution import Distribution as Distribution
from tenon.distributions.divergence import kl_divergence as kl_divergence
from tenon.distributions.divergence import register_kl as register_kl
from tenon.distributions.gamma_ratios import *  # noqa: F403
from tenon.distributions.gammas import *  # noqa: F403
from tenon.distributions.independent import Independent as Independent
from tenon.distributions.lifetimes import *  # noqa: F403
from tenon.distributions.location_scale import *  # noqa: F403
from tenon.distributions.low_rank_normal import LogisticNormal as LogisticNormal
from tenon.distributions.low_rank_normal import LowRankMultivariateNormal as LowRankMultivariateNormal
from tenon.distributions.matrices import *  # noqa: F403
from tenon.distributions.mixture import MixtureSameFamily as MixtureSameFamily
from tenon.distributions.multinomial import *  # noqa: F403
from tenon.distributions.multivariate_normal import MultivariateNormal as MultivariateNormal
from tenon.distributions.negative_binomial import NegativeBinomial as NegativeBinomial
from tenon.distributions.transformed import TransformedDistribution as TransformedDistribution
from tenon.distributions.transforms import *  # noqa: F403
from tenon.distributions.trials import *  # noqa: F403
from tenon.distributions.von_mises import VonMises as VonMises
