"""`tenon demo digits`: train a convolutional network on real handwritten digits, save it, read them in a fresh process.

The training step is one jitted function: forward, loss, backward and Adam's update are one graph.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tenon as tn
from tenon import data, nn, optim
from tenon.debug.console import progress, table
from tenon.pipeline import Step, optimize

SHADES = " ░▒▓█"
BATCH, EPOCHS, SHOWN = 64, 15, 8


class Net(nn.Module):
    """Two convolutions, a pooling, two linear layers: [N, 1, 8, 8] images to [N, 10] scores."""

    def __init__(self) -> None:
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.3),
                                        nn.Linear(128, 10))

    def forward(self, images: tn.Tensor) -> Any:
        return self.classifier(self.features(images))


def training_step(net: Net, optimizer: optim.Optimizer) -> Callable[[tn.Tensor, tn.Tensor], tn.Tensor]:
    """One update, as ordinary Python."""
    def step(images: tn.Tensor, labels: tn.Tensor) -> tn.Tensor:
        loss: tn.Tensor = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step


def run(folder: Path, epochs: int = EPOCHS, seed: int = 0) -> float:
    """Train, save, classify in a fresh process; returns the accuracy on the held-out fifth."""
    tn.manual_seed(seed)
    train, held_out = split(seed)
    net = Net()
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    step = tn.jit(training_step(net, optimizer))
    predict = tn.jit(lambda images: net(images).argmax(axis=1))
    for epoch in range(epochs):
        net.train()
        batches = list(shuffled(*train, seed=seed + epoch))
        started = time.perf_counter()
        losses = [step(*batch) for batch in progress(batches, f"epoch {epoch + 1}/{epochs}")]
        seconds = time.perf_counter() - started
        net.eval()
        accuracy = correct(predict, *held_out)
        loss = sum(float(x) for x in losses) / len(losses)
        print(f"epoch {epoch + 1:2}  loss {loss:.4f}  accuracy {accuracy:.2%}  {seconds:.2f} s")
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "digits.safetensors"
    tn.save(net, weights)
    print(f"weights saved to {weights}; a fresh process reads the held-out images:\n", flush=True)
    subprocess.run([sys.executable, "-m", "tenon", "demo", "digits", "--folder", str(folder), "--classify",
                    str(weights)], check=True)
    net.train()
    report(step, net, next(shuffled(*train, seed=seed)))
    return accuracy


def classify(folder: Path, weights: Path, seed: int = 0) -> None:
    """Load saved weights and read held-out images, as pictures in the terminal and in a PNG."""
    _, (images, labels) = split(seed)
    net = Net()
    net.load_state_dict(tn.load(weights))
    net.eval()
    with tn.no_grad():
        predicted = tn.jit(lambda x: net(x).argmax(axis=1))(images).numpy()
    pictures, truth = images.numpy()[:, 0], labels.numpy()
    print(in_terminal(pictures[:SHOWN], predicted[:SHOWN]))
    print(f"{(predicted == truth).mean():.2%} of {len(truth)} held-out images are read right")
    if picture := in_png(folder / "digits.png", pictures[:32], predicted[:32], truth[:32]):
        print(f"picture: {picture}")


def split(seed: int) -> tuple[tuple[tn.Tensor, tn.Tensor], tuple[tn.Tensor, tn.Tensor]]:
    """Images [N, 1, 8, 8] in 0..1 and labels [N]: four fifths to train on, one fifth held out."""
    images, labels = data.digits()
    order = np.random.default_rng(seed).permutation(len(labels))
    images, labels = images[order].reshape(-1, 1, 8, 8).astype(np.float32), labels[order].astype(np.int64)
    cut = len(labels) * 4 // 5
    return ((tn.asarray(images[:cut]), tn.asarray(labels[:cut])), (tn.asarray(images[cut:]), tn.asarray(labels[cut:])))


def shuffled(images: tn.Tensor, labels: tn.Tensor, seed: int) -> Iterator[tuple[tn.Tensor, tn.Tensor]]:
    """Full batches in an order of their own."""
    dataset = data.TensorDataset(images, labels)
    yield from data.DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, seed=seed)


def correct(predict: Callable[[tn.Tensor], tn.Tensor], images: tn.Tensor, labels: tn.Tensor) -> float:
    """The share of images whose label is predicted."""
    with tn.no_grad():
        return float((predict(images).numpy() == labels.numpy()).mean())


def report(step: Any, net: Net, batch: tuple[tn.Tensor, tn.Tensor]) -> None:
    """What the compiler made of the step, and what that is worth."""
    captured = step.capture(*batch)
    steps: list[Step] = []
    optimize(captured.graph, steps)
    table("the graph of one training step", ["pass", "nodes before", "nodes after", "ms"],
          [(s.name, s.nodes_before, s.nodes_after, f"{s.seconds * 1e3:.1f}") for s in steps])
    program = captured.program
    print(f"{len(program.kernels)} kernels, {program.peak_bytes / 1e6:.1f} MB peak memory planned")
    compiled, eager = milliseconds(lambda: step(*batch), 30), milliseconds(lambda: step.function(*batch), 5)
    print(f"one step: compiled {compiled:.2f} ms, eager {eager:.2f} ms ({eager / compiled:.1f} times as long)")


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times) * 1e3


def in_terminal(pictures: np.ndarray, predicted: np.ndarray) -> str:
    """Pictures [n, 8, 8] side by side in characters, the predicted digit above each."""
    levels = np.rint(np.clip(pictures, 0, 1) * (len(SHADES) - 1)).astype(int)
    rows = ["   ".join("".join(SHADES[v] * 2 for v in picture[y]) for picture in levels)
            for y in range(pictures.shape[1])]
    return "\n".join(["   ".join(f"{digit:^16}" for digit in predicted), *rows])


def in_png(path: Path, pictures: np.ndarray, predicted: np.ndarray, truth: np.ndarray) -> Path | None:
    """A PNG of the pictures, each titled with its predicted digit, red where it is wrong; None without matplotlib."""
    from tenon.debug.image_files import grid
    titles = [f"{p}" if p == t else f"{p} (is {t})" for p, t in zip(predicted, truth, strict=True)]
    colors = ["black" if p == t else "red" for p, t in zip(predicted, truth, strict=True)]
    return grid(path, pictures, titles, colors)
