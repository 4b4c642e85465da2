"""Keywords, defaults and orders of arguments as PyTorch's programs write them."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.rnn
import torch.utils.checkpoint
import torch.utils.data

import tenon as tn
from tenon.errors import ArgumentError

EXPRESSIONS = """
F.relu(x, inplace=True)
F.mse_loss(x, x * 2, weight=x.abs() + 1)
F.l1_loss(x, x * 2, weight=x.abs() + 1, reduction="sum")
F.mse_loss(x, x * 2, reduction="none", weight=x.abs() + 1)
F.dropout(x, 0.0, True, True)
F.dropout(x, p=0.0, training=True, inplace=True)
F.elu(x, 1.0, True)
F.leaky_relu(x, 0.1, True)
F.threshold(x, 0.1, 0.2, True)
F.hardtanh(x, -1., 1., True)
F.celu(x,inplace=True)
F.silu(x,inplace=True)
F.lp_pool2d(y, norm_type=2, kernel_size=2)
F.unfold(input=y, kernel_size=2)
F.fold(F.unfold(y, 2), output_size=(4,4), kernel_size=2)
F.max_pool2d_with_indices(y, kernel_size=2)[1]
F.max_unpool2d(*F.max_pool2d(y,2,return_indices=True), kernel_size=2)
F.embedding_bag(i, w, sparse=True)
F.embedding_bag(i, w, max_norm=1.0)
F.embedding_bag(i, w, scale_grad_by_freq=True)
F.cosine_embedding_loss(input1=x, input2=x, target=L.ones(3))
F.margin_ranking_loss(input1=x[0], input2=x[0], target=L.ones(4))
F.gaussian_nll_loss(x, x*2, var=x.abs()+1)
F.multi_margin_loss(x, L.tensor([0,1,2]), 2, 0.5)
nn.AdaptiveMaxPool2d(2, return_indices=True)(y)[1]
nn.ConvTranspose2d(1,1,2,padding_mode='zeros')(y).shape
nn.EmbeddingBag(5, 4, max_norm=1.0)(i).shape
nn.EmbeddingBag(5, 4, 1.0)(i).shape
nn.GroupNorm(1,1,bias=False)(y)
nn.BatchNorm2d(1,bias=False)(y)
nn.ModuleDict(modules={'a': nn.ReLU()})['a'](x)
nn.ModuleList(modules=[nn.ReLU()])[0](x)
nn.ParameterList(values=[nn.Parameter(x)])[0]
nn.ParameterDict(parameters={'a': nn.Parameter(x)})['a']
nn.init.zeros_(tensor=x)
nn.init.constant_(tensor=x, val=2.)
nn.utils.vector_to_parameters(vec=L.ones(2), parameters=[nn.Parameter(L.zeros(2))])
L.cdist(x1=x, x2=x)
L.split(tensor=x, split_size_or_sections=2)[0]
L.tensordot(a=x, b=x, dims=2)
L.norm(x, p=1)
L.norm(x, 1)
L.norm(x, p='fro', dim=0)
L.vmap(func=lambda a: a*2)(x)
L.vmap(lambda a: a*2, in_dims=1, out_dims=1, chunk_size=2)(x)
L.func.grad(func=lambda a: (a*a).sum())(x)
L.func.jacrev(lambda a: a*2, chunk_size=2)(x[0])
L.func.jacfwd(lambda a: a*2, randomness='same')(x[0])
L.func.functional_call(nn.ReLU(), parameter_and_buffer_dicts={}, args=(x,))
L.func.functional_call(nn.Linear(4,1,bias=False), {'weight': L.ones(1,4)}, x)
L.func.functional_call(nn.Linear(4,1,bias=False), {'weight': L.ones(1,4)}, (x,))
L.func.functional_call(nn.Linear(4,1,bias=False), ({'weight': L.ones(1,4)},{}), kwargs={'input': x})
L.meshgrid(x[0], x[0], indexing='ij')[0]
L.unravel_index(indices=L.tensor([1,2]), shape=(2,3))[0]
L.bernoulli(L.ones(2), 0.0)
nn.Upsample(scale_factor=2, recompute_scale_factor=True)(y)
L.utils.data.default_collate(batch=[1,2])
x.sum(dim=(0,1), keepdim=True)
x.std(dim=0, unbiased=False)
x.std(dim=0, correction=0)
x.var(0, False)
x.softmax(dim=-1, dtype=L.float64)
x.argmax(dim=None, keepdim=False)
x.topk(k=2, dim=1, largest=False, sorted=True)[0]
x.clamp(min=L.zeros(4), max=None)
x.repeat_interleave(repeats=2, dim=0)
x.to(device='cpu', dtype=L.float64, non_blocking=True, copy=True)
x.to(x.double())
x.new_zeros((2,2), dtype=L.int64)
x.new_full(size=(2,), fill_value=3)
x.index_add(dim=0, index=L.tensor([0,2]), source=x[:2], alpha=2)
x.scatter_reduce(dim=0, index=L.zeros(3,4).long(), src=x, reduce='amax', include_self=False)
x.addmm(mat1=x[:, :3], mat2=x, beta=2, alpha=3)
L.addcdiv(input=x, tensor1=x, tensor2=x, value=2)
L.baddbmm(input=L.ones(1,3,3), batch1=L.ones(1,3,2), batch2=L.ones(1,2,3), beta=0.5)
L.clamp(input=x, min=0)
L.where(condition=x>0, input=x, other=0.)
L.cat(tensors=[x,x], dim=1)
L.stack(tensors=(x,x), dim=-1)
L.linspace(start=0, end=1, steps=5)
L.logspace(start=0, end=1, steps=5, base=2)
L.arange(start=0, end=5, step=2)
L.full(size=(2,), fill_value=1.5)
L.eye(n=2, m=3)
L.tril(input=x, diagonal=1)
L.einsum('ij,kj->ik', x, x)
L.einsum('ij,kj->ik', [x, x])
L.quantile(input=x, q=0.5, dim=1, interpolation='lower')
L.histc(input=x, bins=4, min=-1, max=1)
L.bincount(input=L.tensor([0,1,1]), weights=L.ones(3), minlength=4)
L.searchsorted(sorted_sequence=L.arange(4.), input=L.tensor([1.5]), right=True)
L.bucketize(input=x, boundaries=L.arange(3.))
L.nn.functional.pad(input=x, pad=(1,1), mode='constant', value=2)
L.nn.functional.normalize(input=x, p=1, dim=0, eps=1e-3)
L.cumsum(input=x, dim=0, dtype=L.float64)
L.unique(input=L.tensor([2,1,1]), sorted=True, return_inverse=True, return_counts=True)[1]
L.topk(input=x, k=1)[0]
L.gather(input=x, dim=1, index=L.zeros(3,1).long())
L.roll(input=x, shifts=1, dims=0)
L.flip(input=x, dims=[0])
L.rot90(input=x, k=1, dims=[0,1])
L.diff(input=x, n=1, dim=0, prepend=x[:1])
L.trapezoid(y=x, dx=0.5, dim=0)
L.cov(input=x, correction=0)
L.lerp(input=x, end=x*2, weight=0.5)
L.nan_to_num(input=x, nan=0.)
L.take_along_dim(input=x, indices=L.zeros(3,1).long(), dim=1)
L.std_mean(input=x, dim=0, correction=1)[0]
L.isclose(x, x, atol=1.)
L.renorm(input=x, p=2, dim=0, maxnorm=1.)
L.logsumexp(input=x, dim=(0,1))
L.linalg.solve(A=L.eye(3), B=x)
L.linalg.lstsq(x[:, :2], x)[0]
L.linalg.svd(A=x, full_matrices=False)[1]
L.fft.fft(input=x, n=5, dim=0, norm='ortho').real
L.special.logit(input=L.tensor([0.3]), eps=1e-3)
L.result_type(x, 1)
L.promote_types(L.int8, L.uint8)
L.autograd.functional.jacobian(func=lambda a: a*2, inputs=x[0], vectorize=True)
L.autograd.functional.hvp(lambda a: (a**3).sum(), x[0], x[0])[1]
L.utils.checkpoint.checkpoint(lambda a: a*2, x, use_reentrant=False)
L.nn.utils.rnn.pad_sequence(sequences=[x[0],x[0][:2]], batch_first=True, padding_value=-1.)
L.nn.utils.clip_grad_norm_(parameters=[], max_norm=1.)
x.masked_fill(mask=x>0, value=3.)
x.where(condition=x>0, other=x*0)
x.unflatten(dim=1, sizes=(2,2))
x.flatten(start_dim=0, end_dim=-1)
x.narrow(dim=1, start=1, length=2)
x.diagonal(offset=1, dim1=0, dim2=1)
x.swapaxes(axis0=0, axis1=1)
x.transpose(dim0=0, dim1=1)
x.permute(dims=(1,0))
x.expand(size=(3,4))
x.unfold(dimension=1, size=2, step=1)
x.select(dim=0, index=1)
x.prod(dim=0, dtype=L.float64)
x.all(dim=0)
x.norm(p=2, dim=1, keepdim=True)
x.dist(other=x*2, p=1)
x.bernoulli(p=0.0)
x.fill_(value=2)
x.normal_(mean=0, std=0.0)
x.random_(0, to=5).shape
x.exponential_(lambd=2.).shape
x.index_fill(dim=0, index=L.tensor([0]), value=5.)
x.put_(index=L.tensor([0]), source=L.tensor([9.]))
x.lerp_(end=x*2, weight=0.5)
x.sub(other=x, alpha=2)
x.add(1, alpha=2)
x.div(other=2., rounding_mode='floor')
x.pow(exponent=2)
x.eq(other=x)
x.logical_and(other=x>0)
x.clamp_min(min=0.)
x.type(dtype=L.float64)
x.tolist()
x.requires_grad_(requires_grad=True).requires_grad
L.multinomial(input=L.ones(2,3), num_samples=2).shape
L.split(tensor=x, split_size_or_sections=[1,2])[1]
L.split(tensor=x, split_size_or_sections=3, dim=1)[1]
x.split(split_size=3, dim=1)[1]
nn.Linear(4,2,bias=False)(input=x).shape
nn.MSELoss()(input=x, target=x*2)
x.uniform_(0, to=1).shape
nn.BatchNorm1d(4, affine=True, bias=False).bias
nn.InstanceNorm1d(4, affine=True, bias=False).bias
L.nn.functional.adaptive_max_pool2d(y, (3,2), return_indices=True)[1]
F.adaptive_max_pool1d(y[0], 3, return_indices=True)[1]
nn.AdaptiveMaxPool3d((2,None,3), return_indices=True)(L.arange(5*4*7.).reshape(1,5,4,7))[1]
""".strip().splitlines()


def shown(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return list(map(shown, x))
    if hasattr(x, "detach"):
        return np.round(np.asarray(x.detach().numpy(), complex), 4).tolist()
    return str(x).split(".")[-1]


def result(expression: str, lib: Any) -> Any:
    lib.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y, w = (lib.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in ((3, 4), (1, 1, 4, 4), (5, 4)))
    return shown(eval(expression, {"L": lib, "F": lib.nn.functional, "nn": lib.nn, "x": x, "y": y, "w": w,
                                   "i": lib.tensor([[0, 1], [2, 2]])}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_equal_to_pytorch(expression: str) -> None:
    assert result(expression, tn) == result(expression, torch)


def test_bags_with_scaled_rows_and_gradients() -> None:
    """The gradient of a row is divided by how often it is read; PyTorch 2.13 divides it by another row's count."""
    layer = tn.nn.EmbeddingBag(5, 3, max_norm=1.0, scale_grad_by_freq=True, mode="sum")
    with tn.no_grad():
        layer.weight.copy_(tn.arange(15.0).reshape(5, 3) / 10)
    layer(tn.tensor([[0, 1], [3, 3], [1, 3]])).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3, [1.0] * 3, [0.0] * 3]
    norms = np.linalg.norm(layer.weight.detach().numpy(), axis=1)
    np.testing.assert_allclose(norms[[1, 2, 3]], [np.linalg.norm([0.3, 0.4, 0.5]), np.linalg.norm([0.6, 0.7, 0.8]), 1.0], rtol=1e-5)


def test_what_is_not_meant_is_said() -> None:
    with pytest.raises(ArgumentError, match="max_norm='sum' is no number"):
        tn.nn.EmbeddingBag(5, 3, "sum")(tn.tensor([[0, 1]]))
    with pytest.raises(ArgumentError, match="either sections or a split_size"):
        tn.ones(3).split()
    with pytest.raises(ArgumentError, match="padding_mode must be 'zeros'"):
        tn.nn.ConvTranspose2d(1, 1, 2, padding_mode="reflect")
    with pytest.raises(ArgumentError, match="same for all examples"):
        tn.vmap(lambda x: x, randomness="different")
    with pytest.raises(ArgumentError, match="no method 'cubic'"):
        tn.quantile(tn.ones(3), 0.5, interpolation="cubic")
