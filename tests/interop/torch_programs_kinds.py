"""Programs of further kinds, as their authors write them; what each returns is compared.

The imports stand in the first lines, so that a test can change these and nothing else.
"""

import copy
import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from interop.torch_program_inputs import integers, normal, set_params


def neural_ode():
    """An ordinary differential equation whose right side is a network, by Runge-Kutta."""

    class ODEFunc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 2))
            for m in self.net.modules():
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, mean=0, std=0.1)
                    nn.init.constant_(m.bias, val=0)
            self.nfe = 0

        def forward(self, t, y):
            self.nfe += 1
            return self.net(y**3) + torch.sin(t)

    def rk4_step(f, t, dt, y):
        k1 = f(t, y)
        k2 = f(t + dt / 3, y + dt * k1 / 3)
        k3 = f(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
        k4 = f(t + dt, y + dt * (k1 - k2 + k3))
        return (k1 + 3 * (k2 + k3) + k4) * dt * 0.125

    def odeint(f, y0, t):
        ys = [y0]
        for t0, t1 in itertools.pairwise(t):
            y0 = y0 + rk4_step(f, t0, t1 - t0, y0)
            ys.append(y0)
        return torch.stack(ys)

    func = set_params(ODEFunc())
    opt = optim.RMSprop(func.parameters(), lr=1e-3)
    t = torch.linspace(0.0, 1.0, 8).double()
    true = normal(8, 3, 2)
    y0 = normal(3, 2)

    def step(y0, t, true):
        opt.zero_grad()
        pred = odeint(func, y0, t)
        loss = torch.mean(torch.abs(pred - true))
        loss.backward()
        opt.step()
        return loss

    out = [step(y0, t, true).item() for _ in range(4)]
    return out + [func.nfe]


def capsules():
    """Capsules, routed by agreement."""

    def squash(s, dim=-1):
        n = torch.sum(s**2, dim=dim, keepdim=True)
        return n / (1 + n) * s / (torch.sqrt(n) + 1e-8)

    class Primary(nn.Module):
        def __init__(self):
            super().__init__()
            self.capsules = nn.ModuleList([nn.Conv2d(4, 3, kernel_size=3, stride=2, padding=0) for _ in range(4)])

        def forward(self, x):
            u = [c(x) for c in self.capsules]
            u = torch.stack(u, dim=1).view(x.size(0), 4, -1).transpose(1, 2)
            return squash(u)

    class Digit(nn.Module):
        def __init__(self, n_in):
            super().__init__()
            self.W = nn.Parameter(torch.randn(1, n_in, 3, 5, 4))

        def forward(self, x):
            b_ = x.size(0)
            x = torch.stack([x] * 3, dim=2).unsqueeze(4)
            W = torch.cat([self.W] * b_, dim=0)
            u_hat = torch.matmul(W, x)
            b_ij = torch.zeros(1, x.size(1), 3, 1).double()
            for it in range(3):
                c = F.softmax(b_ij, dim=2)
                c = torch.cat([c] * b_, dim=0).unsqueeze(4)
                s = (c * u_hat).sum(dim=1, keepdim=True)
                v = squash(s, -2)
                if it < 2:
                    a = torch.matmul(u_hat.transpose(3, 4), torch.cat([v] * x.size(1), dim=1))
                    b_ij = b_ij + a.squeeze(4).mean(dim=0, keepdim=True)
            return v.squeeze(1)

    net = set_params(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), Primary(), Digit(27)))
    opt = optim.Adadelta(net.parameters(), lr=1.0)
    x, y = normal(4, 1, 9, 9), integers(3, 4)

    def step(x, y):
        v = net(x)
        v_c = torch.sqrt((v**2).sum(dim=2, keepdim=True)).squeeze(-1)
        T = torch.eye(3).double().index_select(dim=0, index=y)
        left = F.relu(0.9 - v_c).view(x.size(0), -1) ** 2
        right = F.relu(v_c.view(x.size(0), -1) - 0.1) ** 2
        loss = (T * left.reshape(4, 3) + 0.5 * (1 - T) * right).sum(dim=1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(x, y).item() for _ in range(3)]


def selective_state_space():
    """A selective state space model, its scan written as a loop."""

    class RMSNorm(nn.Module):
        def __init__(self, d, eps=1e-5):
            super().__init__()
            self.eps, self.weight = eps, nn.Parameter(torch.ones(d))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    class MambaBlock(nn.Module):
        def __init__(self, d=6, n=4, expand=2, dt_rank=2, d_conv=3):
            super().__init__()
            self.d_inner, self.n, self.dt_rank = d * expand, n, dt_rank
            self.in_proj = nn.Linear(d, self.d_inner * 2, bias=False)
            self.conv1d = nn.Conv1d(
                self.d_inner, self.d_inner, bias=True, kernel_size=d_conv, groups=self.d_inner, padding=d_conv - 1
            )
            self.x_proj = nn.Linear(self.d_inner, dt_rank + n * 2, bias=False)
            self.dt_proj = nn.Linear(dt_rank, self.d_inner)
            A = torch.arange(1, n + 1, dtype=torch.float32).unsqueeze(0).expand(self.d_inner, -1).contiguous()
            self.A_log = nn.Parameter(torch.log(A))
            self.A_log._no_weight_decay = True
            self.D = nn.Parameter(torch.ones(self.d_inner))
            self.out_proj = nn.Linear(self.d_inner, d, bias=False)

        def forward(self, x):
            (b, l, _) = x.shape
            x, res = self.in_proj(x).split_with_sizes([self.d_inner, self.d_inner], dim=-1)
            x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)
            x = F.silu(x)
            A = -torch.exp(self.A_log.to(x.dtype))
            delta, B, C = self.x_proj(x).split_with_sizes([self.dt_rank, self.n, self.n], dim=-1)
            delta = F.softplus(self.dt_proj(delta))
            dA = torch.exp(torch.einsum('b l d, d n -> b l d n', delta, A))
            dBu = torch.einsum('b l d, b l n, b l d -> b l d n', delta, B, x)
            h = torch.zeros((b, self.d_inner, self.n), device=dA.device, dtype=x.dtype)
            ys = []
            for i in range(l):
                h = dA[:, i] * h + dBu[:, i]
                ys.append(torch.einsum('b d n, b n -> b d', h, C[:, i, :]))
            y = torch.stack(ys, dim=1) + x * self.D
            return self.out_proj(y * F.silu(res))

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 6)
            self.layers = nn.ModuleList(nn.ModuleDict({'norm': RMSNorm(6), 'mixer': MambaBlock()}) for _ in range(2))
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, ids):
            x = self.emb(ids)
            for layer in self.layers:
                x = x + layer.mixer(layer.norm(x))
            return self.head(x)

    net = set_params(LM())
    decay = [p for n, p in net.named_parameters() if p.dim() >= 2 and not getattr(p, '_no_weight_decay', False)]
    rest = [p for n, p in net.named_parameters() if not (p.dim() >= 2 and not getattr(p, '_no_weight_decay', False))]
    opt = optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=1e-2)
    ids = integers(11, 2, 7)

    def step(ids):
        logits = net(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    out = [step(ids).item() for _ in range(3)]
    return out + [len(decay), len(rest)]


def linear_attention_alibi():
    """Linear attention with running sums, and attention with distances as a bias."""

    def elu_feature(x):
        return F.elu(x) + 1

    def alibi(n_heads, L):
        slopes = torch.tensor([2 ** (-8 * (i + 1) / n_heads) for i in range(n_heads)], dtype=torch.float64)
        pos = torch.arange(L)
        return -(pos[None, :] - pos[:, None]).abs()[None] * slopes[:, None, None]

    class Block(nn.Module):
        def __init__(self, d, h, kind):
            super().__init__()
            self.h, self.kind = h, kind
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            B, L, D = x.shape
            q, k, v = self.qkv(x).view(B, L, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
            if self.kind == 'linear':
                q, k = elu_feature(q), elu_feature(k)
                kv = torch.einsum('bhld,bhlm->bhldm', k, v).cumsum(dim=2)
                z = 1 / (torch.einsum('bhld,bhld->bhl', q, k.cumsum(2)) + 1e-6)
                y = torch.einsum('bhld,bhldm,bhl->bhlm', q, kv, z)
            else:
                bias = alibi(self.h, L).unsqueeze(0)
                mask = torch.ones(L, L, dtype=torch.bool).tril(diagonal=0).logical_not()
                bias = bias.masked_fill(mask, float('-inf'))
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            return self.o(y.transpose(1, 2).contiguous().view(B, L, D))

    net = set_params(nn.Sequential(Block(8, 2, 'linear'), nn.LayerNorm(8), Block(8, 2, 'alibi')))
    opt = optim.ASGD(net.parameters(), lr=0.05)
    x, y = normal(2, 5, 8), normal(2, 5, 8)

    def step(x, y):
        loss = F.l1_loss(net(x), y, reduction='sum')
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(x, y).item() for _ in range(3)]


def barlow_vicreg():
    """Redundancy reduction with an optimizer of its own."""

    def off_diagonal(x):
        n, m = x.shape
        assert n == m
        return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()

    net = set_params(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 6)))
    bn = nn.BatchNorm1d(6, affine=False).double()

    class LARS(optim.Optimizer):
        def __init__(
            self,
            params,
            lr,
            weight_decay=0,
            momentum=0.9,
            eta=0.001,
            weight_decay_filter=None,
            lars_adaptation_filter=None,
        ):
            defaults = {
                "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "eta": eta,
                "weight_decay_filter": weight_decay_filter, "lars_adaptation_filter": lars_adaptation_filter}
            super().__init__(params, defaults)

        @torch.no_grad()
        def step(self):
            for g in self.param_groups:
                for p in g['params']:
                    dp = p.grad
                    if dp is None:
                        continue
                    if g['weight_decay_filter'] is None or not g['weight_decay_filter'](p):
                        dp = dp.add(p, alpha=g['weight_decay'])
                    if g['lars_adaptation_filter'] is None or not g['lars_adaptation_filter'](p):
                        param_norm, update_norm = torch.norm(p), torch.norm(dp)
                        one = torch.ones_like(param_norm)
                        q = torch.where(
                            param_norm > 0.0,
                            torch.where(update_norm > 0, (g['eta'] * param_norm / update_norm), one),
                            one,
                        )
                        dp = dp.mul(q)
                    param_state = self.state[p]
                    if 'mu' not in param_state:
                        param_state['mu'] = torch.zeros_like(p)
                    mu = param_state['mu']
                    mu.mul_(g['momentum']).add_(dp)
                    p.add_(mu, alpha=-g['lr'])

    exclude = lambda p: p.ndim == 1
    opt = LARS(net.parameters(), lr=0.2, weight_decay=1e-3, weight_decay_filter=exclude, lars_adaptation_filter=exclude)
    a, b = normal(8, 5), normal(8, 5)

    def step(a, b):
        z1, z2 = net(a), net(b)
        c = bn(z1).T @ bn(z2)
        c.div_(8)
        on = torch.diagonal(c).add_(-1).pow_(2).sum()
        off = off_diagonal(c).pow_(2).sum()
        std = torch.sqrt(z1.var(dim=0, unbiased=True) + 1e-4)
        x = z1 - z1.mean(dim=0)
        cov = (x.T @ x) / 7
        loss = on + 0.005 * off + F.relu(1 - std).mean() + off_diagonal(cov).pow(2).sum().div(6)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(a, b).item() for _ in range(4)]


def hypernetwork():
    """Weights that a network gives, and features modulated channel by channel."""

    class HyperNet(nn.Module):
        def __init__(self, z, shapes):
            super().__init__()
            self.shapes = shapes
            self.net = nn.Sequential(nn.Linear(z, 16), nn.GLU(), nn.Linear(8, sum(math.prod(s) for s in shapes)))

        def forward(self, z):
            flat = self.net(z)
            out, i = [], 0
            for s in self.shapes:
                n = math.prod(s)
                out.append(flat[..., i : i + n].reshape(*flat.shape[:-1], *s))
                i += n
            return out

    class FiLM(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.g = nn.Linear(3, 2 * c)

        def forward(self, x, z):
            g, b = self.g(z).chunk(2, dim=-1)
            return (1 + g)[:, :, None, None] * x + b[:, :, None, None]

    hyper, film = set_params(HyperNet(3, [(4, 2), (4,), (1, 4), (1,)])), set_params(FiLM(2))
    opt = optim.Adam(list(hyper.parameters()) + list(film.parameters()), lr=1e-2)
    coord = (
        torch.stack(torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(-1, 1, 4), indexing='ij'), -1)
        .reshape(-1, 2)
        .double()
    )
    z, img = normal(3, 3), normal(3, 2, 4, 4)

    def step(z, img):
        w1, b1, w2, b2 = hyper(z)
        h = torch.sin(30 * (torch.einsum('pi,boi->bpo', coord, w1) + b1[:, None]) / 30)
        o = torch.baddbmm(b2[:, None], h, w2.mT)
        y = film(img, z)
        loss = (o.transpose(1, 2).view(3, 1, 4, 4) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return [step(z, img).item() for _ in range(3)]


def consistency_model():
    """Consistency training with a target that follows by `_foreach_lerp_`."""

    def karras(n, smin=0.002, smax=80.0, rho=7.0):
        r = torch.arange(n, dtype=torch.float64) / (n - 1)
        return (smin ** (1 / rho) + r * (smax ** (1 / rho) - smin ** (1 / rho))) ** rho

    net = set_params(nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2)))
    tgt = copy.deepcopy(net).requires_grad_(False)

    def f(m, x, s):
        cskip = 0.25 / ((s - 0.002).pow(2) + 0.25)
        cout = 0.5 * (s - 0.002) / torch.sqrt(s.pow(2) + 0.25)
        return cskip[:, None] * x + cout[:, None] * m(torch.cat([x, torch.log(s)[:, None] / 4], 1))

    opt = optim.RAdam(net.parameters(), lr=1e-2)
    sig = karras(10)

    def step(x, z, n):
        t1, t0 = sig[n + 1], sig[n]
        xt = torch.addcmul(x, t1.unsqueeze(-1), z)
        with torch.no_grad():
            target = f(tgt, x + t0.view(-1, 1) * z, t0)
        d = f(net, xt, t1) - target
        loss = (torch.sqrt(d.pow(2).sum(-1) + 1e-4) - 1e-2).div(t1 - t0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(tgt.parameters()), list(net.parameters()), 0.1)
        return loss

    return [step(normal(6, 2), normal(6, 2), integers(9, 6)).item() for _ in range(4)]


def graph_sage():
    """Messages on a graph by index_add and scatter_reduce."""

    class SAGE(nn.Module):
        def __init__(self, i, o, aggr):
            super().__init__()
            self.lin_l, self.lin_r, self.aggr = nn.Linear(i, o), nn.Linear(i, o, bias=False), aggr

        def forward(self, x, edge_index):
            src, dst = edge_index
            msg = x[src]
            n = x.size(0)
            if self.aggr == 'mean':
                out = torch.zeros(n, x.size(1), dtype=x.dtype).index_add_(0, dst, msg)
                deg = torch.zeros(n, dtype=x.dtype).scatter_add_(0, dst, torch.ones(dst.size(0), dtype=x.dtype))
                out = out / deg.clamp(min=1).unsqueeze(-1)
            else:
                idx = dst.view(-1, 1).expand(-1, x.size(1))
                out = x.new_zeros(n, x.size(1)).scatter_reduce_(0, idx, msg, reduce='amax', include_self=False)
            return self.lin_l(out) + self.lin_r(x)

    net = nn.ModuleDict({'a': SAGE(5, 8, 'mean'), 'b': SAGE(8, 8, 'max')})
    head = nn.Linear(8, 3)
    set_params(net)
    set_params(head, 2)
    x, ei, batch, y = (
        normal(10, 5),
        integers(10, 2, 30),
        torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2]),
        torch.tensor([0, 2, 1]),
    )
    opt = optim.Adagrad([{'params': net.parameters()}, {'params': head.parameters(), 'lr': 0.1}], lr=0.01)
    loops = torch.stack([torch.arange(10)] * 2)
    ei = torch.cat([ei, loops], dim=1)

    def step(x, ei, batch, y):
        h = F.dropout(net['a'](x, ei).relu_(), p=0.0, training=True)
        h = net['b'](h, ei)
        size = int(batch.max().item()) + 1
        pooled = torch.zeros(size, h.size(1), dtype=h.dtype).index_add(0, batch, h) / torch.bincount(
            batch, minlength=size
        ).unsqueeze(1)
        loss = F.nll_loss(F.log_softmax(head(pooled), dim=1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    out = [step(x, ei, batch, y).item() for _ in range(4)]
    return out


def continual_ewc():
    """Elastic weight consolidation."""
    net = set_params(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    opt = optim.SGD(net.parameters(), lr=0.1)

    class EWC:
        def __init__(self, model, data):
            self.model = model
            self.params = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
            self.means = {n: p.clone().detach() for n, p in self.params.items()}
            self.prec = {n: torch.zeros_like(p) for n, p in self.params.items()}
            self.model.eval()
            for x in data:
                self.model.zero_grad()
                output = self.model(x.view(1, -1)).view(1, -1)
                label = output.argmax(1)
                loss = F.nll_loss(F.log_softmax(output, dim=1), label)
                loss.backward()
                for n, p in self.model.named_parameters():
                    self.prec[n].data += p.grad.data**2 / len(data)
            self.model.train()

        def penalty(self, model):
            loss = 0
            for n, p in model.named_parameters():
                loss += (self.prec[n] * (p - self.means[n]) ** 2).sum()
            return loss

    x1, y1, x2, y2 = normal(6, 4), integers(3, 6), normal(6, 4), integers(3, 6)
    out = []
    for _ in range(2):
        loss = F.cross_entropy(net(x1), y1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    ewc = EWC(net, x1)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y) + 100.0 * ewc.penalty(net)
        loss.backward()
        opt.step()
        return loss

    return out + [step(x2, y2).item() for _ in range(3)]


def rnn_variants():
    """Recurrent cells written by hand."""

    class LayerNormLSTMCell(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.hidden_size = h
            self.weight_ih, self.weight_hh = nn.Parameter(torch.randn(4 * h, i)), nn.Parameter(torch.randn(4 * h, h))
            self.layernorm_i, self.layernorm_h, self.layernorm_c = (
                nn.LayerNorm(4 * h),
                nn.LayerNorm(4 * h),
                nn.LayerNorm(h),
            )

        def forward(self, input, state):
            hx, cx = state
            gates = self.layernorm_i(torch.mm(input, self.weight_ih.t())) + self.layernorm_h(
                torch.mm(hx, self.weight_hh.t())
            )
            ingate, forgetgate, cellgate, outgate = gates.chunk(4, 1)
            cy = self.layernorm_c(torch.sigmoid(forgetgate) * cx + torch.sigmoid(ingate) * torch.tanh(cellgate))
            hy = torch.sigmoid(outgate) * torch.tanh(cy)
            return hy, (hy, cy)

    class IndRNN(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.w, self.u = nn.Linear(i, h), nn.Parameter(torch.empty(h).uniform_(0, 1))

        def forward(self, x):
            h = x.new_zeros(x.size(1), self.u.numel())
            outs = []
            for xt in x.unbind(0):
                h = F.relu(self.w(xt) + self.u * h)
                outs.append(h)
            return torch.stack(outs)

    class QRNN(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.h, self.c = h, nn.Conv1d(i, 3 * h, 2)

        def forward(self, x):
            z, f, o = self.c(F.pad(x.permute(1, 2, 0), (1, 0))).permute(2, 0, 1).tensor_split(3, dim=-1)
            z, f, o = z.tanh(), f.sigmoid(), o.sigmoid()
            c, out = None, []
            for zt, ft in zip(z, f):
                c = (1 - ft) * zt if c is None else ft * c + (1 - ft) * zt
                out.append(c)
            return o * torch.stack(out)

    net = set_params(
        nn.ModuleDict(
            {
                'ln': LayerNormLSTMCell(3, 4),
                'ind': IndRNN(4, 4),
                'q': QRNN(4, 4),
                'bi': nn.GRU(4, 3, bidirectional=True),
                'o': nn.Linear(6, 1),
            }
        )
    )
    opt = optim.RMSprop(net.parameters(), lr=1e-3)
    x, y = normal(6, 2, 3), normal(6, 2, 1)

    def step(x, y):
        state = (torch.zeros(2, 4, dtype=x.dtype), torch.zeros(2, 4, dtype=x.dtype))
        hs = []
        for t in range(x.shape[0]):
            h, new = net['ln'](x[t], state)
            state = tuple(0.9 * n + 0.1 * o for n, o in zip(new, state))
            hs += [h]
        o, _ = net.bi(net['q'](net['ind'](torch.stack(hs, 0))))
        loss = F.mse_loss(net.o(o), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), clip_value=0.1)
        opt.step()
        return loss

    out = [step(x, y).item() for _ in range(3)]
    return out


PROGRAMS = (
    neural_ode, capsules, selective_state_space, linear_attention_alibi, barlow_vicreg, hypernetwork,
    consistency_model, graph_sage, continual_ewc, rnn_variants)
