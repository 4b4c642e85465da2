"""An autoencoder of handwritten digits: 64 pixels through 8 numbers and back.

    python examples/autoencoder.py
"""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon import data, nn, optim


class Autoencoder(nn.Module):
    """Images [N, 64] to codes [N, 8] to images [N, 64]."""

    def __init__(self, code: int = 8) -> None:
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, code))
        self.decoder = nn.Sequential(nn.Linear(code, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())

    def forward(self, images: tn.Tensor) -> Any:
        return self.decoder(self.encoder(images))


def main(epochs: int = 40, seed: int = 0) -> tuple[float, float]:
    """Train; returns the mean squared error of the untrained and of the trained network."""
    tn.manual_seed(seed)
    images = data.digits()[0].reshape(-1, 64)
    net = Autoencoder()
    optimizer = optim.Adam(net.parameters(), lr=3e-3)

    @tn.jit
    def step(batch: tn.Tensor) -> Any:
        loss = nn.functional.mse_loss(net(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    batches = data.DataLoader(data.TensorDataset(tn.asarray(images)), batch_size=128, shuffle=True, seed=seed)
    losses = [[float(step(batch)) for (batch,) in batches] for _ in range(epochs)]
    first, last = (sum(epoch) / len(epoch) for epoch in (losses[0][:1], losses[-1]))
    print(f"mean squared error a pixel: {first:.4f} untrained, {last:.4f} after {epochs} epochs")
    return first, last


if __name__ == "__main__":
    main()
