"""Programs of kinds that the other files do not have, in the manner of their authors, in double precision.

The imports stand in the first lines, so that a test can change these and nothing else.
"""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Normal
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

from interop.torch_program_inputs import integers, normal, set_params


def forward_forward():
    """The forward-forward algorithm: each layer learns alone that good data have large squares."""

    class Layer(nn.Linear):
        def __init__(self, in_features, out_features):
            super().__init__(in_features, out_features)
            self.relu = torch.nn.ReLU()
            self.threshold = 2.0

        def forward(self, x):
            x_direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
            return self.relu(torch.mm(x_direction, self.weight.T) + self.bias.unsqueeze(0))

        def train_layer(self, x_pos, x_neg, opt):
            for _ in range(2):
                g_pos = self.forward(x_pos).pow(2).mean(1)
                g_neg = self.forward(x_neg).pow(2).mean(1)
                loss = torch.log(1 + torch.exp(torch.cat([-g_pos + self.threshold, g_neg - self.threshold]))).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
            return self.forward(x_pos).detach(), self.forward(x_neg).detach(), loss.item()

    def overlay_y_on_x(x, y):
        x_ = x.clone()
        x_[:, :4] *= 0.0
        x_[range(x.shape[0]), y] = x.max()
        return x_
    layers = [set_params(Layer(10, 8), 0), set_params(Layer(8, 8), 1)]
    opts = [optim.Adam(layer.parameters(), lr=0.03) for layer in layers]
    x, y = normal(6, 10), integers(4, 6)
    h_pos, h_neg = overlay_y_on_x(x, y), overlay_y_on_x(x, (y + 1) % 4)
    out = []
    for layer, opt in zip(layers, opts):
        h_pos, h_neg, loss = layer.train_layer(h_pos, h_neg, opt)
        out.append(loss)
    goodness_per_label = []
    for label in range(4):
        h = overlay_y_on_x(x, torch.full((6,), label))
        goodness = []
        for layer in layers:
            h = layer(h)
            goodness += [h.pow(2).mean(1)]
        goodness_per_label += [sum(goodness).unsqueeze(1)]
    goodness_per_label = torch.cat(goodness_per_label, 1)
    return out + goodness_per_label.sum(0).tolist() + [float(goodness_per_label.argmax(1).eq(y).float().mean().item())]


def vision_transformer():
    """A small ViT as it is written by hand."""

    class PatchExtractor(nn.Module):
        def __init__(self, patch_size=4):
            super().__init__()
            self.patch_size = patch_size

        def forward(self, input_data):
            batch_size, channels, height, width = input_data.size()
            assert height % self.patch_size == 0 and width % self.patch_size == 0
            num_patches = (height // self.patch_size) * (width // self.patch_size)
            patches = input_data.unfold(2, self.patch_size, self.patch_size).unfold(3, self.patch_size, self.patch_size)
            patches = patches.permute(0, 2, 3, 1, 4, 5).contiguous()
            return patches.view(batch_size, num_patches, -1)

    class MultiHeadAttention(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.attention = nn.MultiheadAttention(embed_dim, num_heads)

        def forward(self, x):
            q = k = v = x.transpose(0, 1)
            out, _ = self.attention(q, k, v)
            return out.transpose(0, 1)

    class TransformerBlock(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
            self.attn = MultiHeadAttention(embed_dim, num_heads)
            self.mlp = nn.Sequential(nn.Linear(embed_dim, 2 * embed_dim), nn.GELU(), nn.Linear(2 * embed_dim, embed_dim))

        def forward(self, x):
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self, dim=8, n_classes=3):
            super().__init__()
            self.patches = PatchExtractor()
            self.linear = nn.Linear(3 * 16, dim)
            self.pos = nn.Parameter(torch.randn(1, 5, dim))
            self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
            self.blocks = nn.ModuleList([TransformerBlock(dim, 2) for _ in range(2)])
            self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, n_classes))

        def forward(self, x):
            x = self.linear(self.patches(x))
            cls = self.cls_token.expand(x.size(0), -1, -1)
            x = torch.cat((cls, x), dim=1) + self.pos
            for block in self.blocks:
                x = block(x)
            return self.head(x[:, 0])
    model = set_params(ViT())
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    loader = DataLoader(TensorDataset(normal(6, 3, 8, 8), integers(3, 6)), batch_size=3, shuffle=False)
    out = []
    for _epoch in range(2):
        for _batch_idx, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            output = model(data)
            loss = F.cross_entropy(output, target)
            loss.backward()
            optimizer.step()
            pred = output.argmax(dim=1, keepdim=True)
            out += [loss.item(), pred.eq(target.view_as(pred)).sum().item()]
        scheduler.step()
    return out + [scheduler.get_last_lr()[0]]


def vq_vae():
    """Vector quantisation with straight-through gradients and moving averages."""

    class VectorQuantizer(nn.Module):
        def __init__(self, num_embeddings=5, embedding_dim=3, decay=0.9, epsilon=1e-5):
            super().__init__()
            self._embedding = nn.Embedding(num_embeddings, embedding_dim)
            self._num_embeddings, self._decay, self._epsilon = num_embeddings, decay, epsilon
            self.register_buffer("_ema_cluster_size", torch.zeros(num_embeddings, dtype=torch.double))
            self._ema_w = nn.Parameter(torch.Tensor(num_embeddings, embedding_dim))
            self._ema_w.data.normal_()

        def forward(self, inputs):
            inputs = inputs.permute(0, 2, 3, 1).contiguous()
            input_shape = inputs.shape
            flat_input = inputs.view(-1, 3)
            distances = (torch.sum(flat_input**2, dim=1, keepdim=True) + torch.sum(self._embedding.weight**2, dim=1)
                         - 2 * torch.matmul(flat_input, self._embedding.weight.t()))
            encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
            encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings, device=inputs.device, dtype=torch.double)
            encodings.scatter_(1, encoding_indices, 1)
            quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
            if self.training:
                self._ema_cluster_size = self._ema_cluster_size * self._decay + (1 - self._decay) * torch.sum(encodings, 0)
                n = torch.sum(self._ema_cluster_size.data)
                self._ema_cluster_size = (
                    (self._ema_cluster_size + self._epsilon) / (n + self._num_embeddings * self._epsilon) * n)
                dw = torch.matmul(encodings.t(), flat_input)
                self._ema_w = nn.Parameter(self._ema_w * self._decay + (1 - self._decay) * dw)
                self._embedding.weight = nn.Parameter(self._ema_w / self._ema_cluster_size.unsqueeze(1))
            loss = 0.25 * F.mse_loss(quantized.detach(), inputs)
            quantized = inputs + (quantized - inputs).detach()
            avg_probs = torch.mean(encodings, dim=0)
            perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
            return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity
    encoder, decoder = set_params(nn.Conv2d(1, 3, 3, 2, 1), 0), set_params(nn.ConvTranspose2d(3, 1, 4, 2, 1), 1)
    quantizer = set_params(VectorQuantizer(), 2)
    quantizer._ema_cluster_size.fill_(1.0)
    optimizer = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2, amsgrad=False)
    data = normal(2, 1, 8, 8)
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        vq_loss, quantized, perplexity = quantizer(encoder(data))
        recon_error = F.mse_loss(decoder(quantized), data) / torch.var(data)
        loss = recon_error + vq_loss
        loss.backward()
        optimizer.step()
        out += [loss.item(), perplexity.item()]
    return out


def physics_informed():
    """A network that is to obey Burgers' equation: second derivatives of its outputs."""
    net = set_params(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3, history_size=5, line_search_fn="strong_wolfe")
    x, t = normal(7, 1).requires_grad_(True), normal(7, 1).abs().requires_grad_(True)
    x0 = torch.linspace(-1, 1, 5, dtype=torch.double).view(-1, 1)
    u0 = -torch.sin(math.pi * x0)
    out = []

    def closure():
        optimizer.zero_grad()
        u = net(torch.cat([x, t], dim=1))
        u_x = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_t = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        f = u_t + u * u_x - (0.01 / math.pi) * u_xx
        loss = torch.mean(f**2) + torch.mean((net(torch.cat([x0, torch.zeros_like(x0)], 1)) - u0) ** 2)
        loss.backward()
        out.append(loss.item())
        return loss
    for _ in range(2):
        optimizer.step(closure)
    return out


def radiance_field():
    """NeRF: positions as sines, and colours summed along rays."""

    class Embedder(nn.Module):
        def __init__(self, n_freqs):
            super().__init__()
            freq_bands = 2.0 ** torch.linspace(0.0, n_freqs - 1, n_freqs, dtype=torch.double)
            self.embed_fns = [lambda x: x]
            for freq in freq_bands:
                self.embed_fns.append(lambda x, freq=freq: torch.sin(x * freq))
                self.embed_fns.append(lambda x, freq=freq: torch.cos(x * freq))

        def forward(self, x):
            return torch.concat([fn(x) for fn in self.embed_fns], dim=-1)

    def cumprod_exclusive(tensor):
        cumprod = torch.cumprod(tensor, -1)
        cumprod = torch.roll(cumprod, 1, -1)
        cumprod[..., 0] = 1.0
        return cumprod
    embed = Embedder(2)
    model = set_params(nn.Sequential(nn.Linear(15, 8), nn.ReLU(), nn.Linear(8, 4)))
    optimizer = optim.RAdam(model.parameters(), lr=1e-2)
    rays_o, rays_d, target = normal(4, 3), normal(4, 3), torch.sigmoid(normal(4, 3))
    z_vals = torch.linspace(0.1, 2.0, 6, dtype=torch.double).expand(4, 6)
    out = []
    for _ in range(3):
        pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
        raw = torch.cat([model(embed(chunk)) for chunk in torch.split(pts.reshape(-1, 3), 10)], 0).reshape(4, 6, 4)
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = torch.cat([dists, 1e10 * torch.ones_like(dists[..., :1])], dim=-1) * torch.norm(rays_d[..., None, :], dim=-1)
        alpha = 1.0 - torch.exp(-nn.functional.relu(raw[..., 3]) * dists)
        weights = alpha * cumprod_exclusive(1.0 - alpha + 1e-10)
        rgb_map = torch.sum(weights[..., None] * torch.sigmoid(raw[..., :3]), dim=-2)
        depth_map = torch.sum(weights * z_vals, dim=-1)
        loss = torch.nn.functional.mse_loss(rgb_map, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), -10.0 * math.log10(loss.item()), depth_map.sum().item()]
    return out


def lstm_crf():
    """Tags of words by a recurrent network and a conditional random field."""

    class BiLSTM_CRF(nn.Module):
        def __init__(self, vocab_size, tagset_size, hidden_dim=6):
            super().__init__()
            self.tagset_size = tagset_size
            self.word_embeds = nn.Embedding(vocab_size, 4)
            self.lstm = nn.LSTM(4, hidden_dim // 2, num_layers=1, bidirectional=True)
            self.hidden2tag = nn.Linear(hidden_dim, tagset_size)
            self.transitions = nn.Parameter(torch.randn(tagset_size, tagset_size))

        def _get_lstm_features(self, sentence):
            embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
            lstm_out, _ = self.lstm(embeds, (torch.zeros(2, 1, 3, dtype=torch.double), torch.zeros(2, 1, 3, dtype=torch.double)))
            return self.hidden2tag(lstm_out.view(len(sentence), 6))

        def _forward_alg(self, feats):
            forward_var = torch.full((1, self.tagset_size), -10000.0, dtype=torch.double)
            forward_var[0][0] = 0.0
            for feat in feats:
                alphas_t = []
                for next_tag in range(self.tagset_size):
                    emit_score = feat[next_tag].view(1, -1).expand(1, self.tagset_size)
                    next_tag_var = forward_var + self.transitions[next_tag].view(1, -1) + emit_score
                    alphas_t.append(torch.logsumexp(next_tag_var, dim=1).view(1))
                forward_var = torch.cat(alphas_t).view(1, -1)
            return torch.logsumexp(forward_var + self.transitions[1], dim=1)[0]

        def _score_sentence(self, feats, tags):
            score = torch.zeros(1, dtype=torch.double)
            tags = torch.cat([torch.tensor([0], dtype=torch.long), tags])
            for i, feat in enumerate(feats):
                score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
            return score + self.transitions[1, tags[-1]]

        def _viterbi(self, feats):
            forward_var, backpointers = self.transitions[:, 0], []
            for feat in feats:
                viterbivars_t, best = torch.max(self.transitions + forward_var.unsqueeze(0), dim=1)
                forward_var = viterbivars_t + feat
                backpointers.append(best)
            path = [int(torch.argmax(forward_var))]
            for best in reversed(backpointers):
                path.append(best[path[-1]].item())
            return path[::-1]

        def neg_log_likelihood(self, sentence, tags):
            feats = self._get_lstm_features(sentence)
            return self._forward_alg(feats) - self._score_sentence(feats, tags)
    model = set_params(BiLSTM_CRF(6, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)
    sentence, tags = integers(6, 5), integers(2, 5) + 2
    out = []
    for _ in range(3):
        model.zero_grad()
        loss = model.neg_log_likelihood(sentence, tags)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    with torch.no_grad():
        out += model._viterbi(model._get_lstm_features(sentence))
    return out


def skip_gram():
    """Words as vectors, with negative samples."""

    class SkipGram(nn.Module):
        def __init__(self, vocab, dim):
            super().__init__()
            self.u_embeddings = nn.Embedding(vocab, dim)
            self.v_embeddings = nn.Embedding(vocab, dim)
            nn.init.uniform_(self.u_embeddings.weight.data, -1.0 / dim, 1.0 / dim)
            nn.init.constant_(self.v_embeddings.weight.data, 0)

        def forward(self, pos_u, pos_v, neg_v):
            emb_u, emb_v, emb_neg_v = self.u_embeddings(pos_u), self.v_embeddings(pos_v), self.v_embeddings(neg_v)
            score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
            score = torch.clamp(score, max=10, min=-10)
            score = -F.logsigmoid(score)
            neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze()
            neg_score = torch.clamp(neg_score, max=10, min=-10)
            neg_score = -torch.sum(F.logsigmoid(-neg_score), dim=1)
            return torch.mean(score + neg_score)
    model = set_params(SkipGram(9, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda epoch: 0.95**epoch)
    out, running_loss = [], 0.0
    for _i in range(4):
        optimizer.zero_grad()
        loss = model.forward(integers(9, 6), integers(9, 6), integers(9, 6, 3))
        loss.backward()
        optimizer.step()
        scheduler.step()
        running_loss = running_loss * 0.9 + loss.item() * 0.1
        out.append(running_loss)
    similar = F.cosine_similarity(model.u_embeddings.weight[0].unsqueeze(0), model.u_embeddings.weight, dim=1)
    values, indices = similar.topk(3)
    return out + values.tolist() + indices.tolist()


def mixture_density():
    """A network of the parameters of a mixture of normal distributions."""

    class MDN(nn.Module):
        def __init__(self, n_hidden, n_gaussians):
            super().__init__()
            self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
            self.z_pi = nn.Linear(n_hidden, n_gaussians)
            self.z_mu = nn.Linear(n_hidden, n_gaussians)
            self.z_sigma = nn.Linear(n_hidden, n_gaussians)

        def forward(self, x):
            z_h = self.z_h(x)
            return F.softmax(self.z_pi(z_h), -1), self.z_mu(z_h), torch.exp(self.z_sigma(z_h))
    model = set_params(MDN(6, 3))
    optimizer = optim.Rprop(model.parameters(), lr=0.01)
    x = normal(8, 1)
    y = torch.sin(x) + 0.1 * normal(8, 1)
    out = []
    for _ in range(4):
        pi, mu, sigma = model(x)
        m = torch.distributions.Normal(loc=mu, scale=sigma)
        loss = torch.exp(m.log_prob(y.expand_as(mu)))
        loss = torch.sum(loss * pi, dim=1)
        loss = torch.mean(-torch.log(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    k = torch.argmax(pi, dim=1)
    chosen = torch.gather(mu, 1, k.unsqueeze(1)).squeeze(1)
    return out + [chosen.sum().item(), m.entropy().mean().item()]


def diffusion():
    """Denoising diffusion: noise of random steps is predicted; means of weights are kept."""

    class Block(nn.Module):
        def __init__(self, n_steps=10):
            super().__init__()
            half = 4
            emb = torch.exp(torch.arange(half, dtype=torch.double) * -(math.log(10000) / (half - 1)))
            emb = torch.arange(n_steps, dtype=torch.double)[:, None] * emb[None, :]
            self.register_buffer("table", torch.cat((emb.sin(), emb.cos()), dim=-1))
            self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 4))
            self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
            self.norm = nn.GroupNorm(2, 4)

        def forward(self, x, t):
            h = self.conv1(x) + self.time(self.table[t])[:, :, None, None]
            return self.conv2(F.silu(self.norm(h)))
    model = set_params(Block())
    ema = {name: p.detach().clone() for name, p in model.state_dict().items()}
    betas = torch.linspace(1e-4, 0.02, 10, dtype=torch.double)
    alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
    optimizer = optim.NAdam(model.parameters(), lr=1e-2)
    out = []
    for _ in range(3):
        x_start, noise, t = normal(3, 1, 6, 6), normal(3, 1, 6, 6), integers(10, 3)
        sqrt_alpha = alphas_cumprod.sqrt().gather(-1, t).reshape(-1, *((1,) * 3))
        sqrt_one_minus = (1 - alphas_cumprod).sqrt().gather(-1, t).reshape(-1, *((1,) * 3))
        loss = F.smooth_l1_loss(model(sqrt_alpha * x_start + sqrt_one_minus * noise, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        with torch.no_grad():
            for name, p in model.state_dict().items():
                ema[name].mul_(0.9).add_(p, alpha=0.1)
        out.append(loss.item())
    return out + [sum(p.sum().item() for p in ema.values())]


def class_activation_maps():
    """Grad-CAM: gradients of inner activations, by hooks."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU())
            self.classifier = nn.Linear(5, 3)
            self.gradients = None

        def activations_hook(self, grad):
            self.gradients = grad

        def forward(self, x):
            x = self.features(x)
            x.register_hook(self.activations_hook)
            self.activations = x
            return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))
    net = set_params(Net()).eval()
    norms = []
    net.features[0].register_full_backward_hook(lambda module, gin, gout: norms.append(gout[0].norm().item()))
    pred = net(normal(1, 3, 6, 6))
    pred[:, pred.argmax(dim=1).item()].sum().backward()
    pooled_gradients = torch.mean(net.gradients, dim=[0, 2, 3])
    activations = net.activations.detach()
    for i in range(5):
        activations[:, i, :, :] *= pooled_gradients[i]
    heatmap = torch.mean(activations, dim=1).squeeze()
    heatmap = np.maximum(heatmap.numpy(), 0)
    heatmap /= np.max(heatmap) + 1e-12
    return norms + heatmap.reshape(-1).tolist()


def soft_actor_critic():
    """Two critics, targets that follow slowly, and an actor of a squashed normal distribution."""

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.q1 = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
            self.q2 = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, state, action):
            sa = torch.cat([state, action], 1)
            return self.q1(sa), self.q2(sa)

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.mean, self.log_std = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 2)

        def forward(self, state, eps):
            h = F.relu(self.trunk(state))
            mean, log_std = self.mean(h), torch.clamp(self.log_std(h), -5, 2)
            dist = Normal(mean, log_std.exp())
            x_t = mean + log_std.exp() * eps
            action = torch.tanh(x_t)
            log_prob = dist.log_prob(x_t) - torch.log(1 - action.pow(2) + 1e-6)
            return action, log_prob.sum(1, keepdim=True)
    actor, critic, target = set_params(Actor(), 0), set_params(Critic(), 1), set_params(Critic(), 2)
    target.load_state_dict(critic.state_dict())
    for param in target.parameters():
        param.requires_grad = False
    log_alpha = torch.zeros(1, dtype=torch.double, requires_grad=True)
    opts = [optim.Adam(actor.parameters(), lr=1e-2), optim.Adam(critic.parameters(), lr=1e-2), optim.Adam([log_alpha], lr=1e-2)]
    out = []
    for _ in range(3):
        state, action, reward, next_state = normal(6, 3), torch.tanh(normal(6, 2)), normal(6, 1), normal(6, 3)
        not_done = (normal(6, 1) > -1).double()
        with torch.no_grad():
            next_action, next_log_pi = actor(next_state, normal(6, 2))
            q1, q2 = target(next_state, next_action)
            target_q = reward + not_done * 0.99 * (torch.min(q1, q2) - log_alpha.exp() * next_log_pi)
        q1, q2 = critic(state, action)
        critic_loss = F.mse_loss(q1, target_q) + F.mse_loss(q2, target_q)
        opts[1].zero_grad()
        critic_loss.backward()
        opts[1].step()
        pi, log_pi = actor(state, normal(6, 2))
        actor_loss = (log_alpha.exp().detach() * log_pi - torch.min(*critic(state, pi))).mean()
        opts[0].zero_grad()
        actor_loss.backward()
        opts[0].step()
        alpha_loss = -(log_alpha * (log_pi - 2.0).detach()).mean()
        opts[2].zero_grad()
        alpha_loss.backward()
        opts[2].step()
        for param, target_param in zip(critic.parameters(), target.parameters()):
            target_param.data.copy_(0.05 * param.data + (1 - 0.05) * target_param.data)
        out += [critic_loss.item(), actor_loss.item(), alpha_loss.item()]
    return out + [parameters_to_vector(target.parameters()).sum().item()]


def point_net():
    """Clouds of points: shared layers, batch normalisation, the maximum over points, a learned transform."""

    class Tnet(nn.Module):
        def __init__(self, k=3):
            super().__init__()
            self.k = k
            self.conv1, self.fc1 = nn.Conv1d(k, 6, 1), nn.Linear(6, k * k)
            self.bn1 = nn.BatchNorm1d(6)

        def forward(self, input):
            bs = input.size(0)
            xb = F.relu(self.bn1(self.conv1(input)))
            pool = nn.MaxPool1d(xb.size(-1))(xb)
            flat = nn.Flatten(1)(pool)
            init = torch.eye(self.k, dtype=torch.double, requires_grad=True).repeat(bs, 1, 1)
            return self.fc1(flat).view(-1, self.k, self.k) + init

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.transform = Tnet()
            self.conv, self.bn, self.fc = nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.Linear(8, 4)
            self.dropout = nn.Dropout(p=0.0)
            self.logsoftmax = nn.LogSoftmax(dim=1)

        def forward(self, input):
            matrix = self.transform(input)
            xb = torch.bmm(torch.transpose(input, 1, 2), matrix).transpose(1, 2)
            xb = torch.max(F.relu(self.bn(self.conv(xb))), 2, keepdim=True)[0].view(-1, 8)
            return self.logsoftmax(self.fc(self.dropout(xb))), matrix

    def pointnetloss(outputs, labels, m, alpha=0.001):
        criterion = torch.nn.NLLLoss()
        bs = outputs.size(0)
        identity = torch.eye(3, requires_grad=True).repeat(bs, 1, 1)
        diff = identity - torch.bmm(m, m.transpose(1, 2))
        return criterion(outputs, labels) + alpha * torch.norm(diff) / float(bs)
    model = set_params(PointNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data, labels = normal(4, 3, 7), integers(4, 4)
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        outputs, m = model(data)
        loss = pointnetloss(outputs, labels, m)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    model.eval()
    _, predicted = torch.max(model(data)[0].data, 1)
    return out + predicted.tolist()


PROGRAMS = (
    forward_forward, vision_transformer, vq_vae, physics_informed, radiance_field, lstm_crf, skip_gram, mixture_density,
    diffusion, class_activation_maps, soft_actor_critic, point_net)
