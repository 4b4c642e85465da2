"""A variational autoencoder of handwritten digits; it then draws digits that nobody wrote.

Method: Kingma and Welling, Auto-Encoding Variational Bayes, 2013.

    python examples/vae.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim
from tenon.demos.digits import in_terminal


class VAE(nn.Module):
    """Images [N, 64] to the mean and log variance of a code [N, code], a code drawn from them, and images [N, 64]."""

    def __init__(self, code: int = 8, width: int = 128) -> None:
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(width, code), nn.Linear(width, code)
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, images: tn.Tensor) -> tuple[Any, Any, Any]:
        hidden = self.encoder(images)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + tn.exp(0.5 * log_variance) * tn.randn_like(mean)
        return self.decoder(code), mean, log_variance


def evidence_bound(scores: Any, images: Any, mean: Any, log_variance: Any) -> Any:
    """The negative evidence lower bound an image: reconstruction and divergence from the unit normal."""
    rebuilt = nn.functional.binary_cross_entropy_with_logits(scores, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean * mean - tn.exp(log_variance)).sum()
    return (rebuilt + divergence) / images.shape[0]


def main(epochs: int = 40, seed: int = 0) -> list[float]:
    """Train and draw; returns the loss of every epoch."""
    tn.manual_seed(seed)
    images = data.digits()[0].reshape(-1, 64)
    net = VAE()
    optimizer = optim.Adam(net.parameters(), lr=2e-3)

    @tn.jit
    def step(batch: tn.Tensor) -> Any:
        scores, mean, log_variance = net(batch)
        loss = evidence_bound(scores, batch, mean, log_variance)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    batches = data.DataLoader(data.TensorDataset(tn.asarray(images)), batch_size=128, shuffle=True, drop_last=True,
                              seed=seed)
    losses = [float(np.mean([float(step(batch)) for (batch,) in batches])) for _ in range(epochs)]
    print(f"negative evidence bound an image: {losses[0]:.2f} in the first epoch, {losses[-1]:.2f} in the last")
    with tn.no_grad():
        drawn = tn.sigmoid(net.decoder(tn.randn(6, 8))).numpy()
    print(in_terminal(drawn.reshape(-1, 8, 8), np.array(["drawn"] * 6)))
    return losses


if __name__ == "__main__":
    main()
