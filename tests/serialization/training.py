"""A run of two epochs with dropout, a schedule and shuffled batches, kept after every step:

    python training.py FILE STOP            says what every step gave, and ends after so many steps
"""

import os
import sys
from typing import Any

import tenon as tn
from tenon import nn, optim


def main(path: str, stop: int, workers: int) -> None:
    tn.manual_seed(11)
    own = tn.random.Generator(seed=4)
    x = tn.randn(22, 5)
    data = tn.data.TensorDataset(x, (x.sum(axis=1) > 0).astype("int64"))
    loader = tn.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))
    opt = optim.Adam(net.parameters(), lr=0.05)
    schedule = optim.StepLR(opt, 4, gamma=0.5)

    @tn.jit
    def step(x: Any, y: Any) -> Any:
        loss = nn.cross_entropy(net(x), y) + 0.01 * tn.rand(1, generator=own)[0]
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    run = tn.Checkpoint(path, net=net, opt=opt, schedule=schedule, loader=loader, own=own)
    kept = run.restore()
    count = kept.get("count", 0)
    for epoch in range(kept.get("epoch", 0), 3):
        for x, y in loader:
            print(count, epoch, step(x, y).item().hex(), float(opt.lr.item()).hex(), y.tolist(), flush=True)
            schedule.step()
            count += 1
            run.save(epoch=epoch, count=count)
            if count == stop:
                os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
