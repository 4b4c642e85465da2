"""Lines of programs for PyTorch, run by both after their imports are changed: `out` is the same."""

import types
from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from tenon.debug.ported_script import changed_imports
from tenon.errors import ArgumentError, DTypeError, ShapeError

HEAD = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torch.nn.parameter import Parameter
import torch.nn.utils.prune as prune

def filled(net, seed=0):
    net.double()
    rng = np.random.default_rng(seed)
    for p in net.parameters():
        p.data = torch.from_numpy(rng.normal(size=tuple(p.shape)))
    return net

def numbers(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))
"""
IDIOMS = {
    "a module goes where a tensor is": "out = nn.Linear(2, 2).to(torch.zeros(1).double()).weight.dtype == torch.float64",
    "sizes are NumPy's numbers": """
net = nn.Sequential(nn.Linear(np.array((3, 2)).prod(), np.prod((2, 2))), nn.TransformerEncoderLayer(np.int64(4), np.int64(2), np.int64(3)))
out = [tuple(p.shape) for p in net.parameters()], [x.shape[0] for x in torch.ones(6).chunk(np.int64(4))]""",
    "arguments by PyTorch's names": """
x, y, i = numbers(3, 4), numbers(3, 4, seed=2), torch.tensor([[1, 1, 2], [1, 1, 2], [0, 0, 0]])
edges, counts = torch.tensor([-1.0, 0.0, 1.0]).double(), torch.tensor([1, 0, 2])
out = [torch.polar(abs=x.abs(), angle=y).real, torch.complex(real=x, imag=y).imag, torch.heaviside(x, values=y), torch.ldexp(x, other=x),
       torch.isin(elements=i, test_elements=torch.tensor([1])), torch.isin(i, test_element=1), torch.bucketize(x, edges, out_int32=True),
       torch.searchsorted(edges, x, out_int32=True, right=True), torch.repeat_interleave(x, 2, dim=1, output_size=8),
       x.repeat_interleave(counts, dim=0, output_size=3), *torch.unique_consecutive(i, dim=0, return_inverse=True, return_counts=True),
       torch.unique_consecutive(i.T, dim=1), torch.zeros(7, 3).fill_diagonal_(5, wrap=True), torch.zeros(3, 4).fill_diagonal_(5, wrap=True),
       torch.compiler.is_compiling(), torch.compiler.disable(lambda: 2)(), torch.resolve_conj(x)]""",
    "a metric below 0 on a plateau": """
out = []
for mode in ("min", "max"):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, 0.5, patience=1, threshold=0.1, cooldown=1)
    for metric in (-10.0, -9.5, -9.3, -9.2, -8.0, -10.5, -11.5, -10.9, -11.0, -12.0):
        plateau.step(metric)
        out += [float(optimizer.param_groups[0]["lr"]), plateau.num_bad_epochs, plateau.cooldown_counter]""",
    "a schedule goes on": """
schedules, out = torch.optim.lr_scheduler, []
for make in (lambda o, k: schedules.StepLR(o, 2, 0.5, last_epoch=k), lambda o, k: schedules.MultiStepLR(o, [2, 5], 0.5, last_epoch=k),
             lambda o, k: schedules.ExponentialLR(o, 0.9, last_epoch=k), lambda o, k: schedules.CosineAnnealingLR(o, 9, 0.01, last_epoch=k),
             lambda o, k: schedules.LambdaLR(o, lambda n: 0.8 ** n, last_epoch=k), lambda o, k: schedules.PolynomialLR(o, 8, last_epoch=k),
             lambda o, k: schedules.LinearLR(o, 0.1, 1.0, 5, last_epoch=k), lambda o, k: schedules.ConstantLR(o, 0.1, 5, last_epoch=k),
             lambda o, k: schedules.MultiplicativeLR(o, lambda n: 0.7, last_epoch=k)):
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))], "lr": 0.3, "initial_lr": 0.5}], 0.1)
    schedule = make(optimizer, 3)
    for _ in range(5):
        out += [round(float(optimizer.param_groups[0]["lr"]), 12), schedule.last_epoch]
        optimizer.step(); schedule.step()""",
    "sizes of a transposed convolution": """
up, x = filled(nn.ConvTranspose2d(2, 3, 3, stride=(2, 3), padding=1)), numbers(1, 2, 4, 5)
out = [up(x, output_size=size) for size in ((8, 14), [7, 13], torch.ones(1, 3, 8, 15).size())]""",
    "words of a dataset": """
out = [tuple(words) for words, numbers in DataLoader([("a", 1), ("b", 2), ("c", 3)], batch_size=2)], \
    type(torch.utils.data.default_collate([("a", 1)])[0]) is tuple""",
    "the text of a number": """
x = torch.tensor(2.5)
out = f"{x} {x:.2f} {torch.tensor(3)} {torch.tensor(True)}", "{} {:d}".format(x * 2, torch.tensor(3)), "%.1f" % x""",
    "parameters with their names": """
net = filled(nn.Linear(2, 3))
optimizer = torch.optim.AdamW([{"params": net.named_parameters(), "lr": 0.1}])
net(numbers(4, 2)).pow(2).sum().backward()
optimizer.step()
torch.optim.SGD(net.named_parameters(), 0.1).step()
out = net.weight, net.bias""",
    "several rows of a dataset": """
data = TensorDataset(torch.arange(6), torch.arange(6) * 2)
both = ConcatDataset([data, data])
out = [x.tolist() for x in (*data[1:4], *data[[0, 2]], *data[torch.tensor([1, 5])], *Subset(data, [5, 4, 3])[:2])], both.cumulative_sizes""",
    "modules by name are read and changed": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.extra = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Linear(3, 4), None
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        for name, module in self._modules.items():
            if module is not None and name != "extra":
                x = module(x)
        return x
net = filled(Net())
net._modules["head"] = filled(nn.Linear(3, 1))
net.body._modules["1"] = nn.Tanh()
net.set_submodule("body.1", nn.Softplus())
net._modules.pop("extra", None)
w = net.head._parameters["weight"]
del net.head._parameters["weight"]
net.head._parameters["weight"] = Parameter(w * 2)
net._buffers["count"] = torch.ones(1)
out = net(numbers(5, 2)), sorted(net.state_dict()), list(net._modules), net.count, list(net.body._modules), list(net.head._parameters)""",
    "checkpoint_sequential": """
from torch.utils.checkpoint import checkpoint_sequential
net, x = filled(nn.Sequential(*[f() for _ in range(3) for f in (lambda: nn.Linear(3, 3), nn.Tanh)])), numbers(2, 3).requires_grad_()
checkpoint_sequential(net, 4, x, use_reentrant=False).sum().backward()
out = x.grad, net[0].weight.grad""",
    "attention of given weights": """
w, o, b = numbers(12, 4).requires_grad_(), numbers(4, 4).requires_grad_(), numbers(12)
x, y, padded = numbers(5, 2, 4), numbers(3, 2, 4, seed=2), torch.tensor([[False, False, True], [False, True, False]])
out = [F.multi_head_attention_forward(x, x, x, 4, 2, w, b, None, None, False, 0.0, o, None, training=False),
       F.multi_head_attention_forward(x, y, y, 4, 2, w, b, numbers(1, 1, 4), numbers(1, 1, 4), True, 0.1, o, None, False, padded, average_attn_weights=False),
       F.multi_head_attention_forward(x, y, y, 4, 2, None, b, None, None, False, 0.0, o, b[:4], True, need_weights=False, is_causal=False,
                                      use_separate_proj_weight=True, q_proj_weight=w[:4], k_proj_weight=w[4:8], v_proj_weight=w[8:])[:1]]
sum(each[0].sum() for each in out).backward()
out += [w.grad, o.grad, isinstance((1, 2), torch.Size) or True]""",
    "sdpa_kernel": """
from torch.nn.attention import SDPBackend, sdpa_kernel
q = numbers(1, 2, 3, 4)
with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
    out = F.scaled_dot_product_attention(q, q, q)""",
    "custom_fwd": """
class Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=CAST)
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y
    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        types.append(str((g @ y.t()).dtype)[-8:])
        return g @ y.t(), x.t() @ g
out, types = [], []
for enabled in (True, False):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        x, y = numbers(2, 3).float().requires_grad_(), numbers(3, 2).float().requires_grad_()
        product = Product.apply(x, y)
    product.float().sum().backward()
    out += [str(product.dtype)[-8:], x.grad, y.grad]
out += types""",
    "results into a tensor": """
x, y, z, at = numbers(3, 3), numbers(3, 3, seed=2), torch.zeros(3, 3).double(), torch.empty(0, dtype=torch.int64)
out = []
for _ in range(3):
    torch.add(x, y, out=z); out.append(z.clone())
    torch.matmul(x, y, out=z); out.append(z.clone())
    torch.max(z, torch.zeros_like(z), out=z); out.append(z.clone())
    torch.cat([x, y], dim=1, out=(w := torch.empty(0).double())); out.append(w)
    torch.topk(x, 2, out=(w := torch.empty(0).double(), at)); out += [w, at]
    torch.mean(x, dim=1, out=(w := torch.empty(3).double())); out.append(w)
    torch.arange(4, out=(w := torch.empty(4))); out.append(w)""",
    "more values than places": """
x, y, at = numbers(4, 5), numbers(4, 5, seed=2), torch.tensor([[0, 1], [2, 0], [1, 1]])
out = [x.scatter(1, at, y), x.scatter_add(0, at, y), x.scatter(1, at, 2, reduce="multiply"), x.scatter_reduce(1, at, y, "sum")]""",
    "lists of tensors": """
xs, ys = [numbers(3), numbers(2)], [numbers(3, seed=2), numbers(2, seed=3)]
torch._foreach_mul_(xs, 0.5)
torch._foreach_add_(xs, ys, alpha=2)
torch._foreach_addcdiv_(xs, ys, ys, [0.1, 0.2])
torch._foreach_lerp_(xs, ys, 0.3)
out = xs, torch._foreach_sqrt(torch._foreach_abs(xs)), torch._foreach_norm(xs)""",
    "losses and weights of one's own": """
from torch.nn.modules.loss import _Loss, _WeightedLoss
class Loss(_WeightedLoss):
    def forward(self, x, y):
        return F.cross_entropy(x, y, self.weight, reduction=self.reduction)
class Plain(_Loss):
    pass
loss = Loss(weight=torch.tensor([1.0, 2.0]).double(), reduction="sum")
out = loss(numbers(3, 2), torch.tensor([0, 1, 1])), list(loss.state_dict()), Plain().reduction, \\
    nn.init._calculate_fan_in_and_fan_out(torch.ones(4, 3, 2)), nn.init._calculate_correct_fan(torch.ones(4, 3), "fan_out")""",
    "the imports of public programs": """
import hashlib, importlib, pathlib, tempfile
import torch.distributed as dist
from torch.distributed import destroy_process_group, init_process_group
from torch.hub import load_state_dict_from_url
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.model_zoo import load_url
folder = pathlib.Path(tempfile.mkdtemp())
real = importlib.import_module("torch")
real.save(real.nn.Linear(2, 1).state_dict(), folder / "w.pt")
state = {"model": {"w": real.ones(2), "n": real.tensor(3)}, "epoch": 4, "lr": [0.1, ("a", None, True)], "optimizer": {"state": {0: {"step": real.tensor(1.0)}}}}
for old in (False, True):
    real.save(state, folder / "all.pth", _use_new_zipfile_serialization=not old)
    back = torch.load(folder / "all.pth", map_location="cpu")
    out = [back["model"]["w"], back["model"]["n"], back["epoch"], back["lr"], back["optimizer"]["state"][0]["step"]]
data = (folder / "w.pt").read_bytes()
named = folder / f"w-{hashlib.sha256(data).hexdigest()[:8]}.pt"
named.write_bytes(data)
(folder / "w-00000000.pt").write_bytes(data)
found = load_state_dict_from_url(named.as_uri(), model_dir=str(folder / "a"), check_hash=True)
out += [sorted(found), sorted(load_url(named.as_uri(), str(folder / "a"))), dist.is_initialized()]
out.append([p.name for p in (folder / "a").iterdir()] == [named.name])
try:
    load_state_dict_from_url((folder / "w-00000000.pt").as_uri(), model_dir=str(folder / "a"), check_hash=True)
except RuntimeError:
    out.append(len(list((folder / "a").iterdir())))""",
    "names that mean nothing here": """
torch.set_default_tensor_type(torch.FloatTensor)
torch.set_flush_denormal(False)
out = torch.ones(2, layout=torch.strided, pin_memory=False), torch.zeros_like(torch.ones(2), memory_format=torch.preserve_format), \\
    torch.version.cuda is None or torch.version.cuda, nn.parameter.Parameter is nn.Parameter, torch.GradScaler is torch.amp.GradScaler""",
    "prune": """
net = filled(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)))
conv, linear, x, out = net[0], net[3], numbers(2, 1, 4, 4), []
prune.l1_unstructured(conv, name="weight", amount=0.3)
prune.ln_structured(linear, name="weight", amount=2, n=2, dim=0)
prune.l1_unstructured(linear, "weight", amount=0.2)
prune.ln_structured(linear, name="weight", amount=0.25, n=1, dim=1)
prune.l1_unstructured(linear, "bias", amount=1, importance_scores=numbers(5))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(3):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    out.append(loss)
net(x)
out += [conv.weight, linear.weight, linear.bias_mask, sorted(net.state_dict()), prune.is_pruned(net), conv.weight_orig.grad]
held = conv.weight_orig
prune.remove(conv, "weight")
out += [conv.weight, conv.weight is held, sorted(conv.state_dict()), prune.is_pruned(conv)]
class Even(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"
    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask[::2] = 0
        return mask
Even.apply(conv, "bias")
prune.global_unstructured(((conv, "weight"), (linear, "weight")), pruning_method=prune.L1Unstructured, amount=0.4)
prune.identity(conv, "bias")
out += [conv.bias_mask.sum(), conv.weight_mask, linear.weight_mask, conv(x)]""",
}


def run(text: str) -> Any:
    module = types.ModuleType("idiom")
    exec(compile(text, "idiom.py", "exec"), vars(module))
    return module.out


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    elif isinstance(wanted, torch.Tensor):
        assert str(found.dtype).split(".")[1] == str(wanted.dtype).split(".")[1] and found.shape == tuple(wanted.shape)
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    else:
        assert found == wanted


CASES = {name: text for name, text in IDIOMS.items() if "CAST" not in text} | {
    f"custom_fwd, {cast}": IDIOMS["custom_fwd"].replace("CAST", cast) for cast in ("None", "torch.float32")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_pytorchs(name: str) -> None:
    same(run(changed_imports(HEAD + CASES[name])), run(HEAD + CASES[name]))


def test_results_into_what_cannot_take_them() -> None:
    x, z = tn.ones(2, 2), tn.zeros(2, 2)
    with pytest.raises(ArgumentError, match="out= is a copy that nobody holds"):
        tn.add(x[0], x[0], out=z[0])
    with pytest.raises(ArgumentError, match="out= is a copy that nobody holds"):
        tn.cat([x[0]], out=z[0])
    with pytest.raises(ShapeError, match=r"out= is f32\[2, 2\], the result f32\[2\]"):
        tn.sum(x, 0, out=z)
    with pytest.raises(DTypeError, match="out= of int64 does not take the result, float32"):
        tn.exp(x, out=(whole := tn.zeros(2, 2, dtype=tn.int64)))
    assert whole.sum() == 0
    step = tn.jit(lambda x: tn.multiply(x, 3, out=z))
    for _ in range(3):
        assert step(x) is not None and z.sum().item() == 12


def test_a_mask_of_what_is_pruned_is_captured() -> None:
    net = tn.nn.utils.prune.l1_unstructured(tn.nn.Linear(3, 2), "weight", amount=0.5)
    x, step = tn.ones(1, 3), tn.jit(net)
    for _ in range(2):
        assert bool(tn.allclose(step(x), net(x)))
        tn.nn.utils.prune.l1_unstructured(net, "weight", amount=0.5)
