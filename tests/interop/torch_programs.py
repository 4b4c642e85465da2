"""Programs in the manner of pytorch/examples, as their users write them; what each returns is compared.

The imports stand in the first lines, so that a test can change these and nothing else.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler

rng = np.random.default_rng(1)


def normal(*shape):
    """Normally distributed numbers, the same in every framework."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def integers(end, *shape):
    """Integers from 0 to `end`, the same in every framework."""
    return torch.from_numpy(rng.integers(0, end, shape))


def params(net, seed=0):
    """Give a network the same parameters in every framework."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.1))


def mnist():
    """A convolutional network on images of digits."""

    class Net(nn.Module):

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 8, 3, 1)
            self.conv2 = nn.Conv2d(8, 8, 3, 1)
            self.dropout1 = nn.Dropout(0.0)
            self.fc1 = nn.Linear(8 * 5 * 5, 16)
            self.fc2 = nn.Linear(16, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = self.conv2(x)
            x = F.relu(x)
            x = F.max_pool2d(x, 2)
            x = self.dropout1(x)
            x = torch.flatten(x, 1)
            x = self.fc1(x)
            x = F.relu(x)
            x = self.fc2(x)
            return F.log_softmax(x, dim=1)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = Net().to(device)
    params(model)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    out = []
    data, target = (normal(6, 1, 14, 14), integers(10, 6))
    model.train()
    for _e in range(3):
        data, target = (data.to(device), target.to(device))
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        out.append(loss.item())
    model.eval()
    with torch.no_grad():
        output = model(data)
        pred = output.argmax(dim=1, keepdim=True)
        correct = pred.eq(target.view_as(pred)).sum().item()
        out += [F.nll_loss(output, target, reduction='sum').item(), correct]
    return out


def vae():
    """A variational autoencoder."""

    class VAE(nn.Module):

        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(20, 16)
            self.fc21 = nn.Linear(16, 4)
            self.fc22 = nn.Linear(16, 4)
            self.fc3 = nn.Linear(4, 16)
            self.fc4 = nn.Linear(16, 20)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return (self.fc21(h1), self.fc22(h1))

        def reparameterize(self, mu, logvar):
            std = torch.exp(0.5 * logvar)
            eps = torch.zeros_like(std)
            return mu + eps * std

        def decode(self, z):
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 20))
            z = self.reparameterize(mu, logvar)
            return (self.decode(z), mu, logvar)
    m = VAE()
    params(m)
    opt = optim.Adam(m.parameters(), lr=0.001)
    out = []
    data = torch.sigmoid(normal(8, 4, 5))
    for _i in range(3):
        opt.zero_grad()
        r, mu, lv = m(data)
        BCE = F.binary_cross_entropy(r, data.view(-1, 20), reduction='sum')
        KLD = -0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())
        loss = BCE + KLD
        loss.backward()
        opt.step()
        out.append(loss.item() / len(data))
    return out


def dcgan():
    """A generator and a discriminator, trained in turns."""

    class G(nn.Module):

        def __init__(self):
            super().__init__()
            self.main = nn.Sequential(nn.ConvTranspose2d(5, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())

        def forward(self, x):
            return self.main(x)

    class D(nn.Module):

        def __init__(self):
            super().__init__()
            self.main = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 4, 1, 0, bias=False), nn.Sigmoid())

        def forward(self, x):
            return self.main(x).view(-1, 1).squeeze(1)
    g, d = (G(), D())
    params(g)
    params(d, 1)
    c = nn.BCELoss()
    oD = optim.Adam(d.parameters(), lr=0.0002, betas=(0.5, 0.999))
    oG = optim.Adam(g.parameters(), lr=0.0002, betas=(0.5, 0.999))
    out = []
    real = normal(4, 1, 8, 8)
    noise = normal(4, 5, 1, 1)
    for _i in range(2):
        d.zero_grad()
        label = torch.full((real.size(0),), 1.0, dtype=real.dtype, device='cpu')
        o = d(real)
        e1 = c(o, label)
        e1.backward()
        fake = g(noise)
        label.fill_(0)
        o = d(fake.detach())
        e2 = c(o, label)
        e2.backward()
        oD.step()
        g.zero_grad()
        label.fill_(1)
        o = d(fake)
        eg = c(o, label)
        eg.backward()
        oG.step()
        out += [(e1 + e2).item(), eg.item(), o.mean().item()]
    return out


def word_lm():
    """A language model of an LSTM, its state handed on, updated by hand."""

    class RNNModel(nn.Module):

        def __init__(self, ntoken=11, ninp=6, nhid=6, nlayers=2):
            super().__init__()
            self.encoder = nn.Embedding(ntoken, ninp)
            self.rnn = nn.LSTM(ninp, nhid, nlayers)
            self.decoder = nn.Linear(nhid, ntoken)
            self.nhid, self.nlayers, self.ntoken = (nhid, nlayers, ntoken)

        def forward(self, input, hidden):
            emb = self.encoder(input)
            output, hidden = self.rnn(emb, hidden)
            decoded = self.decoder(output)
            decoded = decoded.view(-1, self.ntoken)
            return (F.log_softmax(decoded, dim=1), hidden)

        def init_hidden(self, bsz):
            weight = next(self.parameters())
            return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))
    m = RNNModel()
    params(m)
    crit = nn.NLLLoss()
    h = m.init_hidden(3)
    out = []
    data = integers(11, 5, 3)
    target = integers(11, 15)
    for _i in range(3):
        m.zero_grad()
        h = tuple(v.detach() for v in h)
        o, h = m(data, h)
        loss = crit(o, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 0.25)
        for p in m.parameters():
            p.data.add_(p.grad, alpha=-20)
        out.append(loss.item())
    return out + [math.exp(out[-1])]


def transformer():
    """Causal self-attention with positions of sines."""

    class PE(nn.Module):

        def __init__(self, d_model, max_len=50):
            super().__init__()
            pe = torch.zeros(max_len, d_model)
            position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
            pe[:, 0::2] = torch.sin(position * div_term)
            pe[:, 1::2] = torch.cos(position * div_term)
            pe = pe.unsqueeze(0).transpose(0, 1)
            self.register_buffer('pe', pe)

        def forward(self, x):
            return x + self.pe[:x.size(0), :]

    class Attn(nn.Module):

        def __init__(self, d, h):
            super().__init__()
            self.h = h
            self.qkv = nn.Linear(d, 3 * d)
            self.o = nn.Linear(d, d)

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = self.qkv(x).chunk(3, dim=2)
            q, k, v = [z.view(b, t, self.h, c // self.h).transpose(1, 2) for z in (q, k, v)]
            att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
            mask = torch.tril(torch.ones(t, t)).view(1, 1, t, t)
            att = att.masked_fill(mask[:, :, :t, :t] == 0, float('-inf'))
            att = F.softmax(att, dim=-1)
            return self.o((att @ v).transpose(1, 2).contiguous().view(b, t, c))
    emb = nn.Embedding(11, 8)
    pe = PE(8)
    a = Attn(8, 2)
    ln = nn.LayerNorm(8)
    head = nn.Linear(8, 11)
    net = nn.ModuleList([emb, a, ln, head])
    params(net)
    opt = optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    x = integers(11, 3, 6)
    y = integers(11, 3, 6)
    out = []
    for _i in range(3):
        h = pe(emb(x).transpose(0, 1)).transpose(0, 1)
        h = ln(h + a(h))
        logits = head(h)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


def regression():
    """A polynomial, fitted with updates by hand."""
    W = normal(4, 1)
    b = normal(1)
    fc = nn.Linear(4, 1)
    params(fc)
    out = []

    def feats(x):
        x = x.unsqueeze(1)
        return torch.cat([x ** i for i in range(1, 5)], 1)
    for _i in range(4):
        x = feats(normal(8))
        y = x.mm(W) + b[0]
        fc.zero_grad()
        o = F.smooth_l1_loss(fc(x), y)
        loss = o.item()
        o.backward()
        for p in fc.parameters():
            p.data.add_(-0.1 * p.grad)
        out.append(loss)
    return out


def reinforce():
    """Policy gradients of one episode."""

    class P(nn.Module):

        def __init__(self):
            super().__init__()
            self.affine1 = nn.Linear(4, 8)
            self.dropout = nn.Dropout(p=0.0)
            self.affine2 = nn.Linear(8, 2)

        def forward(self, x):
            x = self.affine1(x)
            x = self.dropout(x)
            x = F.relu(x)
            return F.softmax(self.affine2(x), dim=1)
    p = P()
    params(p)
    opt = optim.Adam(p.parameters(), lr=0.01)
    logs = []
    rewards = []
    for t in range(5):
        state = normal(4).float().unsqueeze(0)
        probs = p(state)
        a = torch.tensor([t % 2])
        logs.append(torch.log(probs.gather(1, a.unsqueeze(1))).squeeze(1))
        rewards.append(float(t))
    R = 0
    returns = []
    for r in rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std(unbiased=True) + 1e-05)
    loss = torch.cat([-l * R for l, R in zip(logs, returns)]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return [loss.item()] + [q.sum().item() for q in p.parameters()]


def siamese():
    """One network on two images."""

    class S(nn.Module):

        def __init__(self):
            super().__init__()
            self.c = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))
            self.fc = nn.Sequential(nn.Linear(4 * 9 * 2, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
            self.sigmoid = nn.Sigmoid()

        def once(self, x):
            o = self.c(x)
            return o.view(o.size()[0], -1)

        def forward(self, a, b):
            o = torch.cat((self.once(a), self.once(b)), 1)
            return self.sigmoid(self.fc(o))
    m = S()
    params(m)
    opt = optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    out = []
    a, b = (normal(5, 1, 8, 8), normal(5, 1, 8, 8))
    t = integers(2, 5).float()
    for _i in range(3):
        opt.zero_grad()
        o = m(a, b).squeeze()
        l = nn.BCELoss()(o, t)
        l.backward()
        opt.step()
        out.append(l.item())
    pred = torch.where(o > 0.5, 1, 0)
    return out + [pred.eq(t.view_as(pred)).sum().item()]


def gat():
    """Attention on a graph."""

    class GAT(nn.Module):

        def __init__(self, i, o, h):
            super().__init__()
            self.h, self.o = (h, o)
            self.W = nn.Parameter(torch.empty(size=(i, h * o)))
            self.a = nn.Parameter(torch.empty(size=(h, 2 * o, 1)))
            self.lr = nn.LeakyReLU(0.2)
            nn.init.xavier_normal_(self.W)

        def forward(self, x, adj):
            n = x.shape[0]
            ht = torch.mm(x, self.W).view(n, self.h, self.o).permute(1, 0, 2)
            s = torch.matmul(ht, self.a[:, :self.o, :])
            t = torch.matmul(ht, self.a[:, self.o:, :])
            e = self.lr(s + t.mT)
            m = -9e+16 * torch.ones_like(e)
            e = torch.where(adj > 0, e, m)
            att = F.softmax(e, dim=-1)
            return torch.matmul(att, ht).mean(dim=0)
    m = GAT(5, 3, 2)
    params(m)
    opt = optim.Adam(m.parameters(), lr=0.01, weight_decay=0.0005)
    x = normal(6, 5)
    adj = (normal(6, 6) > 0).float()
    y = integers(3, 6)
    out = []
    for _i in range(3):
        opt.zero_grad()
        l = F.nll_loss(F.log_softmax(m(x, adj), dim=1), y)
        l.backward()
        opt.step()
        out.append(l.item())
    return out


def style():
    """Perceptual losses of Gram matrices."""

    def gram(y):
        b, ch, h, w = y.size()
        f = y.view(b, ch, w * h)
        ft = f.transpose(1, 2)
        return f.bmm(ft) / (ch * h * w)

    class R(nn.Module):

        def __init__(self):
            super().__init__()
            self.c = nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect')
            self.i = nn.InstanceNorm2d(4, affine=True)
            self.u = nn.Conv2d(4, 3, 1)

        def forward(self, x):
            y = F.relu(self.i(self.c(x)))
            y = F.interpolate(y, mode='nearest', scale_factor=2)
            return self.u(y)
    m = R()
    params(m)
    opt = optim.Adam(m.parameters(), 0.01)
    x = normal(2, 3, 5, 5)
    t = normal(2, 3, 10, 10)
    out = []
    for _i in range(3):
        opt.zero_grad()
        y = m(x)
        l = F.mse_loss(y, t) + 100.0 * F.mse_loss(gram(y), gram(t)[:2, :, :].expand_as(gram(y)))
        l.backward()
        opt.step()
        out.append(l.item())
    return out


PROGRAMS = (mnist, vae, dcgan, word_lm, transformer, regression, reinforce, siamese, gat, style)
