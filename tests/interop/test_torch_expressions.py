"""Expressions of PyTorch's users, in the words that they use, in Tenon and in PyTorch: the same values."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn

SETUP = """
rng = np.random.default_rng(3)
def normal(*shape):
    return torch.from_numpy(rng.standard_normal(shape))
x, y, z, v, A = normal(3, 4), normal(3, 4), normal(2, 3, 4), normal(5), normal(4, 4)
S, b, i, im = A @ A.T + torch.eye(4, dtype=torch.float64), x > 0, torch.tensor([2, 0, 2, 1, 0]), normal(2, 3, 6, 6)
q, w = x.clone().requires_grad_(), y.clone().requires_grad_()
def filled(net):
    net = net.double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(normal(*p.shape))
    return net
lin = filled(nn.Linear(4, 2))
D, C = torch.distributions, torch.distributions.constraints
"""
EXPRESSIONS = """
F.relu(x, inplace=True), x
F.relu(x, True), x
F.leaky_relu(x, 0.2, True), x
F.elu(x, 1.0, True), x
F.hardtanh(x, -1, 1, True), x
F.threshold(x, 0.1, 2.0, True), x
F.celu(x, 1.2, True), x
F.silu(x, inplace=True), x
F.dropout(x, 0.5, False, True), x
F.dropout(x, p=1.0, training=True, inplace=True), x
nn.ReLU(inplace=True)(x), x
nn.ReLU(True)(x), x
nn.LeakyReLU(0.1, True)(x), x
nn.Dropout(1.0, True)(x), x
nn.RReLU(inplace=True).eval()(x), x
nn.FeatureAlphaDropout().eval()(z)
h = q * 1; (F.relu(h, inplace=True) + h).sum().backward(); q.grad
F.embedding(i, x, padding_idx=0, max_norm=0.5, norm_type=1.0), x
e = filled(nn.Embedding(3, 2, scale_grad_by_freq=True)); (e(i) ** 2).sum().backward(); e.weight.grad
F.cosine_embedding_loss(input1=x, input2=y, target=torch.tensor([1, -1, 1]))
F.margin_ranking_loss(input1=x, input2=y, target=torch.sign(x), margin=0.1)
F.gaussian_nll_loss(x, y, var=torch.ones(3, 4).double())
F.fold(normal(1, 12, 4), output_size=(3, 3), kernel_size=2)
torch.cdist(x1=x, x2=y, p=1.0)
torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist")
torch.unravel_index(indices=torch.tensor([5, 1]), shape=(2, 4))
F.upsample_nearest(im, scale_factor=2)
F.upsample_bilinear(im, scale_factor=2)
F.one_hot(i)
F.one_hot(i, -1)
F.softmax(x, dim=0, dtype=torch.float32)
torch.log_softmax(x, dim=1, dtype=torch.float32)
x.softmax(0, dtype=torch.float32)
x.mean(-1, dtype=torch.float32)
torch.eye(n=3, m=2)
torch.take(x, torch.tensor([0, 5]))
x.index_add(0, torch.tensor([0, 0]), y[:2], alpha=2)
x.squeeze(0), x.squeeze(-1), x[None].squeeze(0), x.unsqueeze(1).squeeze(dim=(0, 1))
torch.unique(i, sorted=True, return_inverse=True)
x.topk(k=2).indices, x.topk(2, dim=0).values, v.kthvalue(2).indices, torch.mode(i).values
x.sort(dim=1).values, torch.max(x, dim=1).values, x.min(0).values, x.cummax(1).values
torch.norm(x, "nuc")
torch.quantile(x, torch.tensor([0.25, 0.75]).double(), dim=1), torch.quantile(v, torch.tensor(0.3).double())
torch.einsum("ij,ij", [x, y])
torch.linalg.vander(v), torch.linalg.vander(v, N=3)
torch.linalg.inv_ex(A), torch.linalg.solve_ex(A, v[:4])
torch.linalg.inv_ex(torch.stack([A, A * 0])).info > 0
torch.linalg.solve(S, A, left=False)
torch.linalg.eigvalsh(A, UPLO="U"), torch.linalg.eigh(S, "L").eigenvalues
torch.linalg.tensorinv(normal(4, 2, 2), ind=1)
torch.linalg.tensorsolve(normal(2, 2, 4), normal(2, 2)), torch.linalg.tensorsolve(normal(4, 2, 2), normal(2, 2), dims=(0,))
torch.fft.fft(x, dim=0), torch.fft.rfft(input=x, n=4, dim=-1, norm="ortho"), torch.fft.fft2(z, dim=(1, 2))
torch.fft.fftn(z, dim=(0, 1), s=(2, 2)), torch.fft.fftshift(x, dim=1), torch.fft.ifftshift(x, dim=(0, 1))
torch.autograd.grad((q * 2).sum(), [q, w], materialize_grads=True)
torch.autograd.grad(q * 2, q, grad_outputs=torch.stack([y, x]), is_grads_batched=True)
(q * w).sum().backward(inputs=[q]); q.grad, w.grad
torch.autograd.backward([(q * w).sum()], inputs=q); q.grad, w.grad
torch.func.functional_call(lin, dict(lin.named_parameters()), (x,), {}, tie_weights=True, strict=True)
torch.func.vmap(lambda a: a.sum(), randomness="same", chunk_size=2)(x)
lin(x).sum().backward(); nn.utils.get_total_norm([p.grad for p in lin.parameters()], norm_type=1.0)
lin(x).sum().backward(); nn.utils.clip_grads_with_norm_(lin.parameters(), 0.5, torch.tensor(2.0)); lin.weight.grad
D.transform_to(C.greater_than(2.0))(x), D.biject_to(C.less_than(1.5)).log_abs_det_jacobian(x, 1.5 - x.exp())
D.biject_to(C.simplex)(x), D.transform_to(C.simplex)(x), D.transform_to(C.lower_cholesky)(A), D.transform_to(C.real)(x)
D.biject_to(C.unit_interval).inv(torch.sigmoid(x)), D.biject_to(C.interval(1.0, 3.0))(x), D.transform_to(C.positive)(x)
D.biject_to(C.independent(C.positive, 1)).log_abs_det_jacobian(x, x.exp())
""".strip().splitlines()


def names(library: Any) -> dict[str, Any]:
    there: dict[str, Any] = {"torch": library, "nn": library.nn, "F": library.nn.functional, "np": np}
    exec(SETUP, there)
    return there


def value(library: Any, line: str) -> list[np.ndarray]:
    there, (*statements, last) = names(library), line.split("; ")
    for statement in statements:
        exec(statement, there)
    return list(arrays(eval(last, there)))


def arrays(found: Any) -> Iterator[np.ndarray]:
    if isinstance(found, (tuple, list)):
        for part in found:
            yield from arrays(part)
    elif found is not None:
        yield found.detach().numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", EXPRESSIONS)
def test_it_is_what_pytorch_gives(line: str) -> None:
    for found, wanted in zip(value(tn, line), value(torch, line), strict=True):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if wanted.dtype == np.float32 else 1e-8, atol=1e-9)


TIED = """
net = filled(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)))
net[1].weight = net[0].weight
result = torch.func.functional_call(net, {"0.weight": A}, (x,)), torch.func.functional_call(
    net, {"0.weight": A}, (x,), tie_weights=False)
"""


def test_a_weight_at_two_places_is_replaced_at_both() -> None:
    found = [names(library) for library in (tn, torch)]
    for there in found:
        exec(TIED, there)
    for ours, theirs in zip(*(arrays(there["result"]) for there in found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


LARGE = """
m = filled(nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10], div_value=2.0, head_bias=True))
h = normal(3, 8)
out = m(h, torch.tensor([1, 5, 15]))
out.loss.backward()
result = [out.output, out.loss, m.predict(h), m.log_prob(h), m(h[0], torch.tensor(7)).output]
result += [p.grad for p in m.parameters()]
"""


def test_adaptive_softmax() -> None:
    found = [names(library) for library in (tn, torch)]
    for there in found:
        exec(LARGE, there)
    for ours, theirs in zip(*(arrays(there["result"]) for there in found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
