"""Networks on graphs: GCN and GAT, over nodes [N, features] and edges [2, E] from the first to the second.

T. Kipf, M. Welling, "Semi-supervised classification with graph convolutional networks", 2016; P. Velickovic et al.,
"Graph attention networks", 2017.  Weights have the names of torch_geometric's layers.
"""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.nn import init
from tenon.nn.dropout import Dropout
from tenon.nn.linear import Linear
from tenon.nn.module import Module, Parameter
from tenon.ops.activations import elu, leaky_relu, relu
from tenon.ops.comparison import where
from tenon.ops.creation import arange, empty, ones, zeros
from tenon.ops.exponential import exp
from tenon.ops.index_helpers import scatter_reduce
from tenon.ops.indexing import put, take
from tenon.ops.joining_and_axes import concat, reshape, stack
from tenon.ops.reduction import mean, sum_
from tenon.ops.shape import broadcast_to


def with_loops(edges: Any, count: Any) -> Any:
    """The edges, and one from every node to itself."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise ShapeError(f"edges are integers [2, E], not {edges.type}")
    own = arange(count, device=edges.device)
    return concat([edges, stack([own, own]).astype(edges.dtype)], axis=1)


def gathered(values: Any, to: Any, count: Any) -> Any:
    """The sums of what comes to each node: [E, ...] to [count, ...]."""
    nothing = zeros((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return put(nothing, to, values, axis=0, reduce="add")


class GCNConv(Module):
    """Each node's neighbours and itself, weighted by 1 / sqrt of both degrees, through one layer.

    >>> layer = tn.models.GCNConv(3, 2)
    >>> layer(tn.ones(4, 3), tn.tensor([[0, 1], [1, 2]])).shape
    (4, 2)
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True):
        self.lin = Linear(in_channels, out_channels, bias=False)
        init.xavier_uniform_(self.lin.weight)
        self.bias = Parameter(zeros(out_channels)) if bias else None

    def forward(self, x: Any, edges: Any) -> Any:
        count = x.shape[0]
        start, end = with_loops(edges, count)
        degree = gathered(ones(start.shape[0], dtype=x.dtype, device=x.device), end, count)
        scale = degree ** -0.5
        weights = take(scale, start, axis=0) * take(scale, end, axis=0)
        out = gathered(take(self.lin(x), start, axis=0) * weights[:, None], end, count)
        return out if self.bias is None else out + self.bias


class GATConv(Module):
    """Each node's neighbours and itself, weighted by attention of several heads.

    `concat` joins the heads' outputs, [N, heads * out_channels]; otherwise they are averaged, [N, out_channels].

    >>> tn.models.GATConv(3, 2, heads=4)(tn.ones(5, 3), tn.tensor([[0, 1], [1, 2]])).shape
    (5, 8)
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1, concat: bool = True,
                 negative_slope: float = 0.2, dropout: float = 0.0, bias: bool = True):
        if heads < 1:
            raise ArgumentError(f"GATConv: heads must be at least 1, got {heads}")
        self.heads, self.channels, self.joined, self.slope = heads, out_channels, concat, negative_slope
        self.lin = Linear(in_channels, heads * out_channels, bias=False)
        self.att_src, self.att_dst = (Parameter(empty(1, heads, out_channels)) for _ in range(2))
        for weight in (self.lin.weight, self.att_src, self.att_dst):
            init.xavier_uniform_(weight)
        self.bias = Parameter(zeros(heads * out_channels if concat else out_channels)) if bias else None
        self.dropout = Dropout(dropout)

    def forward(self, x: Any, edges: Any) -> Any:
        count = x.shape[0]
        h = reshape(self.lin(x), (count, self.heads, self.channels))
        start, end = with_loops(edges, count)
        scores = take(sum_(h * self.att_src, axis=2), start, axis=0) + take(sum_(h * self.att_dst, axis=2), end, axis=0)
        weights = self.dropout(self._shares(leaky_relu(scores, self.slope), end, count))
        out = gathered(take(h, start, axis=0) * weights[:, :, None], end, count)
        out = reshape(out, (count, self.heads * self.channels)) if self.joined else mean(out, axis=1)
        return out if self.bias is None else out + self.bias

    def _shares(self, scores: Any, end: Any, count: Any) -> Any:
        """A softmax over the edges that end at each node."""
        lowest = zeros((count, self.heads), dtype=scores.dtype, device=scores.device) - 1e30
        places = broadcast_to(end[:, None], scores.shape)
        most = scatter_reduce(lowest, places, scores.detach(), 0, "max")
        e = exp(scores - take(most, end, axis=0))
        total = gathered(e, end, count)
        return e / take(where(total > 0, total, 1), end, axis=0)


class GCN(Module):
    """Two graph convolutions: nodes [N, features] to scores of classes [N, classes].

    >>> tn.models.GCN(3, 8, 2)(tn.ones(4, 3), tn.tensor([[0, 1], [1, 2]])).shape
    (4, 2)
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float = 0.5):
        self.conv1, self.conv2 = GCNConv(in_channels, hidden_channels), GCNConv(hidden_channels, out_channels)
        self.dropout = Dropout(dropout)

    def forward(self, x: Any, edges: Any) -> Any:
        x = relu(self.conv1(self.dropout(x), edges))
        return self.conv2(self.dropout(x), edges)


class GAT(Module):
    """Two layers of attention: nodes [N, features] to scores of classes [N, classes].

    >>> tn.models.GAT(3, 4, 2, heads=2)(tn.ones(4, 3), tn.tensor([[0, 1], [1, 2]])).shape
    (4, 2)
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, heads: int = 8, dropout: float = 0.6):
        self.conv1 = GATConv(in_channels, hidden_channels, heads, dropout=dropout)
        self.conv2 = GATConv(hidden_channels * heads, out_channels, 1, concat=False, dropout=dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Any, edges: Any) -> Any:
        x = elu(self.conv1(self.dropout(x), edges))
        return self.conv2(self.dropout(x), edges)
