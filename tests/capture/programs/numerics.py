"""Numerics in loops: iterations that stop when they are good enough, and arithmetic whose type matters."""

import math

from capture.corpus import T, V, program, scalar, session


@program([scalar(2.0)], [scalar(9.0)], [scalar(0.25)])
def square_root_by_newton(a):
    guess = a
    while T.abs(guess * guess - a) > 1e-4:
        guess = (guess + a / guess) / 2.0
    return guess


@program([scalar(2.0)], [scalar(9.0)], [scalar(123.0)])
def square_root_with_a_limit_on_steps(a):
    guess, steps = a, 0
    while T.abs(guess * guess - a) > 1e-4 * a and steps < 20:
        guess = (guess + a / guess) / 2.0
        steps += 1
    return guess, steps


@program([scalar(2.0)], [scalar(3.0)])
def bisection(target):
    low, high = target * 0.0, target
    for _ in range(30):
        middle = (low + high) / 2.0
        if middle * middle > target:
            high = middle
        else:
            low = middle
    return low


@program([scalar(0.5)], [scalar(-1.0)], [scalar(2.0)])
def exponential_series(x):
    term, total, n = x * 0.0 + 1.0, x * 0.0, 0
    while T.abs(term) > 1e-6:
        total = total + term
        n += 1
        term = term * x / n
    return total


@program
def power_iteration(x):
    matrix = T.tensor([[4.0, 1.0, 0.0, 0.0], [1.0, 3.0, 1.0, 0.0], [0.0, 1.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    value = T.sum(x) * 0.0
    for _ in range(100):
        y = matrix @ x
        before, value = value, T.sqrt(T.sum(y * y))
        x = y / value
        if T.abs(value - before) < 1e-4:
            break
    return value


@program
def conjugate_gradient(x):
    matrix = T.tensor([[4.0, 1.0, 0.0, 0.0], [1.0, 3.0, 1.0, 0.0], [0.0, 1.0, 5.0, 1.0], [0.0, 0.0, 1.0, 2.0]])
    solution = x * 0.0
    residual = x - matrix @ solution
    direction, error = residual, T.sum(residual * residual)
    while error > 1e-8:
        product = matrix @ direction
        step = error / T.sum(direction * product)
        solution = solution + step * direction
        residual = residual - step * product
        error, before = T.sum(residual * residual), error
        direction = residual + (error / before) * direction
    return solution


@program
def gradient_descent_with_line_search(x):
    loss = lambda v: T.sum((v - 1.0) ** 2)
    for _ in range(5):
        slope, rate = 2.0 * (x - 1.0), 1.0
        while loss(x - rate * slope) > loss(x) - 0.5 * rate * T.sum(slope * slope):
            rate = rate * 0.5
        x = x - rate * slope
    return x


@program
def fibonacci_below_a_limit(x):
    a, b = 0, 1
    while b < T.max(T.abs(x)) * 10.0:
        a, b = b, a + b
    return a


@program
def greatest_common_divisor(x):
    a, b = T.floor(T.abs(T.sum(x))) + 12.0, T.floor(T.max(x)) + 8.0
    while b > 0.0:
        a, b = b, a - b * T.floor(a / b)
    return a


@program
def compensated_sum(x):
    total, lost = T.sum(x) * 0.0, T.sum(x) * 0.0
    for k in range(4):
        value = x[k] - lost
        new = total + value
        lost = (new - total) - value
        total = new
    return total, lost


@program
def whole_numbers_stay_whole(x):
    count = T.cast(T.sum(x), "int32") * 0
    for k in range(4):
        if x[k] > 0:
            count = count + k
    return count // 2, count % 2, count * 2


@program
def python_numbers_as_they_are(x):
    half, n = 1 / 2, 7 // 2
    return x * half + n + math.sqrt(2.0) if T.sum(x) > 0 else x ** n


@program
def runge_kutta_with_a_step_that_adapts(x):
    t, h = 0.0, T.sum(x) * 0.0 + 0.1
    while t < 0.5:
        full = x + h * -x
        half = x + h / 2 * -x
        twice = half + h / 2 * -half
        if T.max(T.abs(full - twice)) > 5e-3:
            h = h / 2
        else:
            x, t = twice, t + h
    return x, t


@program
def mandelbrot_count(x):
    c_real, c_imaginary = x[0] * 0.3, x[1] * 0.2
    real, imaginary, n = c_real, c_imaginary, 0
    while real * real + imaginary * imaginary < 4.0 and n < 25:
        real, imaginary = real * real - imaginary * imaginary + c_real, 2.0 * real * imaginary + c_imaginary
        n += 1
    return n


@program
def running_maximum(x):
    best = [x[0]]
    for k in range(1, 4):
        best.append(x[k] if x[k] > best[-1] else best[-1])
    return T.stack(best)


@program
def gradient_through_a_branch(x):
    def loss(v):
        if T.sum(v) > 0:
            return T.sum(v * v)
        return T.sum(v * 3.0)
    return T.grad(loss)(x)


@program
def gradient_through_a_while_loop(x):
    def loss(v):
        while T.sum(v * v) > 1.0:
            v = v * 0.5
        return T.sum(v * v)
    return T.grad(loss)(x)


@program
def softmax_temperature_search(x):
    temperature = 1.0
    while T.max(T.softmax(x / temperature, -1)) > 0.5 and temperature < 50.0:
        temperature = temperature * 1.5
    return temperature


@program([V(3, 1, 2), scalar(2)], [V(9, 7, 8), scalar(0)])
def horner(coefficients, x):
    value = x * 0.0
    for k in range(coefficients.shape[0]):
        value = value * x + coefficients[k]
    return value


@session
def sizes_from_one_to_five(jit):
    @jit
    def f(x):
        total = T.sum(x)
        for k in range(x.shape[0]):
            if x[k] > 2.0:
                total = total + k
        return total

    for n in (3, 1, 4, 5, 2):
        yield f(T.tensor([float(k) for k in range(n)]))


@session
def empty_input(jit):
    @jit
    def f(x):
        if x.shape[0] == 0:
            return T.sum(x) + 1.0
        return T.max(x) if T.sum(x) > 0 else T.min(x)

    for values in ([1.0, 2.0], [], [-1.0, -2.0], []):
        yield f(T.tensor(values))
