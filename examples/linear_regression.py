"""Linear regression by gradient descent: a loss, its gradient, one compiled step.

    python examples/linear_regression.py
"""

import numpy as np

import tenon as tn

Parameters = dict[str, tn.Tensor]


def loss(parameters: Parameters, x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
    predicted = x @ parameters["weight"] + parameters["bias"]
    return ((predicted - y) ** 2).mean()


@tn.jit
def step(parameters: Parameters, x: tn.Tensor, y: tn.Tensor, rate: float) -> tuple[tn.Tensor, Parameters]:
    value, gradients = tn.value_and_grad(loss)(parameters, x, y)
    return value, {name: p - rate * gradients[name] for name, p in parameters.items()}


def main(steps: int = 200) -> tuple[Parameters, float]:
    rng = np.random.default_rng(0)
    true_weight, true_bias = np.array([2.0, -3.0, 0.5], np.float32), 1.5
    points = rng.standard_normal((256, 3), np.float32)
    noise = 0.01 * rng.standard_normal(256).astype(np.float32)
    x, y = tn.asarray(points), tn.asarray(points @ true_weight + true_bias + noise)
    parameters = {"weight": tn.zeros(3), "bias": tn.zeros(())}
    value = tn.tensor(float("inf"))
    for k in range(steps):
        value, parameters = step(parameters, x, y, 0.1)
        if k % max(steps // 5, 1) == 0:
            print(f"step {k:4d}   loss {float(value):.6f}")
    print("weight", parameters["weight"], "bias", parameters["bias"], f"loss {float(value):.6f}")
    return parameters, float(value)


if __name__ == "__main__":
    main()
