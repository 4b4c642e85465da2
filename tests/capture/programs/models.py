"""Realistic models: decoding, search, solvers, routing, early exits, attention with options, trees, boxes."""

from capture.corpus import T, V, attempt, program, scalar, session

EMBED = V.random(6, 4, seed=1)
MIX = V.random(4, 6, seed=2)


def weights(data):
    return T.tensor(data.elements)


def row(matrix, i):
    """The row of a matrix that a tensor names."""
    return T.take(matrix, T.reshape(T.cast(i, "int32"), (1,)), 0)[0]


@program
def early_exit_network(x):
    layers = [T.tensor([[0.5, 0.1, 0.0, 0.2]] * 4), T.tensor([[0.3, -0.1, 0.6, 0.0]] * 4), T.tensor([[1.0, 0.0, 0.0, 1.0]] * 4)]
    for depth, w in enumerate(layers):
        x = T.tanh(x @ w)
        confidence = T.max(T.softmax(x, -1))
        if confidence > 0.3:
            return x, depth
    return x, len(layers)


@program
def mixture_of_experts_hard_routing(x):
    gate = T.softmax(T.stack([T.sum(x), T.max(x), T.min(x)]), -1)
    experts = [lambda v: v * 2.0, lambda v: T.tanh(v), lambda v: v - 1.0]
    best = T.argmax(gate)
    if best == 0:
        y = experts[0](x)
    elif best == 1:
        y = experts[1](x)
    else:
        y = experts[2](x)
    return y * T.max(gate)


@program
def mixture_of_experts_by_token(y):
    out = []
    for token in y:
        if T.sum(token) > 1.0:
            out.append(T.tanh(token))
        elif T.sum(token) > -1.0:
            out.append(token * 2.0)
        else:
            out.append(-token)
    return T.stack(out)


@program([scalar(2)], [scalar(5)], [scalar(0)])
def greedy_decoding(start):
    embed, mix = weights(EMBED), weights(MIX)
    token, produced = T.cast(start, "int32"), []
    for _ in range(5):
        logits = row(embed, token) @ mix
        token = T.cast(T.argmax(logits), "int32")
        produced.append(token)
    return T.stack(produced)


@program([scalar(2)], [scalar(5)], [scalar(0)])
def greedy_decoding_until_a_stop_token(start):
    embed, mix = weights(EMBED), weights(MIX)
    token, score, length = T.cast(start, "int32"), T.sum(embed) * 0.0, 0
    while token != 3 and length < 8:
        logits = row(embed, token) @ mix
        token = T.cast(T.argmax(logits), "int32")
        score = score + T.max(logits)
        length += 1
    return score, length


@session
def decoding_with_a_cache_of_keys_and_values(jit):
    wk, wv = weights(V.random(4, 4, seed=3)), weights(V.random(4, 4, seed=4))

    @jit
    def step(x, cache=None):
        k, v = x @ wk, x @ wv
        if cache is not None:
            k, v = T.concat([cache[0], k]), T.concat([cache[1], v])
        weight = T.softmax(x @ T.transpose(k), -1)
        return weight @ v, (k, v)

    x, cache = T.tensor([[1.0, -1.0, 0.5, 2.0]]), None
    for _ in range(4):
        x, cache = step(x, cache)
        yield x, cache


@session
def decoder_with_state_in_attributes(jit):
    class Decoder:
        def __init__(self):
            self.embed, self.mix = weights(EMBED), weights(MIX)
            self.history, self.finished = [], False

        def step(self, token):
            hidden = row(self.embed, token)
            for past in self.history:
                hidden = hidden + past * 0.5
            self.history.append(hidden)
            return T.cast(T.argmax(hidden @ self.mix), "int32")

    decoder = Decoder()
    step = jit(decoder.step)
    token = T.tensor(1, "int32")
    for _ in range(4):
        token = step(token)
        yield token, len(decoder.history)


@program([scalar(1)], [scalar(4)])
def beam_search_of_width_two(start):
    scores = T.softmax(weights(EMBED) @ weights(MIX), -1)
    token = T.cast(start, "int32")
    beams = [(T.sum(scores) * 0.0, [token]), (T.sum(scores) * 0.0 - 100.0, [token])]
    for _ in range(3):
        totals = T.concat([total + T.log(row(scores, tokens[-1])) for total, tokens in beams])
        best, at = T.topk(totals, 2)
        grown = []
        for k in range(2):
            parent, token = at[k] // 6, T.cast(at[k] % 6, "int32")
            history = [T.where(parent == 0, a, b) for a, b in zip(beams[0][1], beams[1][1])]
            grown.append((best[k], history + [token]))
        beams = grown
    return beams[0][0], T.stack(beams[0][1])


@program([scalar(1)], [scalar(4)])
def beam_search_with_python_branches(start):
    scores = T.softmax(weights(EMBED) @ weights(MIX), -1)
    first, second = (T.sum(scores) * 0.0, T.cast(start, "int32")), (T.sum(scores) * 0.0 - 9.0, T.cast(start, "int32"))
    for _ in range(3):
        candidates = []
        for total, token in (first, second):
            p = row(scores, token)
            k = T.argmax(p)
            candidates.append((total + T.log(T.max(p)), T.cast(k, "int32")))
        first, second = candidates if candidates[0][0] > candidates[1][0] else candidates[::-1]
    return first, second


@program
def newton_for_a_root(x):
    root, steps = T.max(x), 0
    while T.abs(root ** 3 - 2.0 * root - 5.0) > 1e-3 and steps < 50:
        root = root - (root ** 3 - 2.0 * root - 5.0) / (3.0 * root ** 2 - 2.0)
        steps += 1
    return root, steps


@program
def newton_with_automatic_gradient(x):
    f = lambda v: v ** 3 - 2.0 * v - 5.0
    root = T.max(x) + 2.0
    for _ in range(10):
        step = f(root) / T.grad(f)(root)
        root = root - step
        if T.abs(step) < 1e-5:
            break
    return root


@program
def ode_solver_with_tolerance(x):
    """Heun's method, whose step doubles and halves with the error."""
    slope = lambda t, v: -v + t
    t, h, v = T.sum(x) * 0.0, T.sum(x) * 0.0 + 0.2, x
    rejected = 0
    while t < 0.999:
        h = T.minimum(h, 1.0 - t)
        k1 = slope(t, v)
        k2 = slope(t + h, v + h * k1)
        error = T.max(T.abs(h * (k2 - k1) / 2.0))
        if error < 0.02:
            t, v = t + h, v + h * (k1 + k2) / 2.0
            h = h * 1.5
        else:
            h = h * 0.5
            rejected += 1
    return v, rejected


@session
def decision_transformer_attention(jit):
    """An attention block in the style of the transformers library."""
    class Attention:
        def __init__(self, size, cross=False):
            self.split_size, self.scale, self.is_cross, self.pruned = size, True, cross, set()
            self.c_attn = T.tensor(V.random(size, 3 * size, seed=5).elements)
            if cross:
                self.q_attn = T.tensor(V.random(size, size, seed=6).elements)

        def _attn(self, q, k, v, mask=None):
            w = q @ T.transpose(k)
            if self.scale:
                w = w / (v.shape[-1] ** 0.5)
            if mask is not None:
                w = w + mask
            w = T.softmax(w, -1)
            return w @ v, w

        def forward(self, x, layer_past=None, attention_mask=None, encoder_hidden_states=None, use_cache=False,
                    output_attentions=False):
            if encoder_hidden_states is not None:
                if not hasattr(self, "q_attn"):
                    raise ValueError("If class is used as cross attention, the weights `q_attn` have to be defined.")
                query = x @ self.q_attn
                both = encoder_hidden_states @ self.c_attn
                key, value = both[:, :self.split_size], both[:, self.split_size:2 * self.split_size]
            else:
                all_three, n = x @ self.c_attn, self.split_size
                query, key, value = all_three[:, :n], all_three[:, n:2 * n], all_three[:, 2 * n:]
            if layer_past is not None:
                past_key, past_value = layer_past
                key, value = T.concat([past_key, key]), T.concat([past_value, value])
            present = (key, value) if use_cache is True else None
            out, w = self._attn(query, key, value, attention_mask)
            outputs = (out, present)
            if output_attentions:
                outputs += (w,)
            return outputs

    block, crossed = Attention(4), Attention(4, cross=True)
    f, g = jit(block.forward), jit(crossed.forward)
    x = T.tensor([[1.0, -1.0, 0.5, 0.2], [0.3, 0.1, -0.7, 1.0]])
    yield f(x)
    yield f(x, output_attentions=True)
    out, present = f(x, use_cache=True)
    yield out, present
    yield f(x, layer_past=present, use_cache=True)
    yield f(x, attention_mask=T.tensor([[0.0, -1e4], [0.0, 0.0]]))
    yield attempt(f, x, encoder_hidden_states=x)
    yield g(x, encoder_hidden_states=x)
    block.scale = False
    yield f(x), f(x, use_cache=1)


@session
def recursive_neural_network_over_a_tree(jit):
    mix = T.tensor(V.random(4, 2, seed=7).elements)

    @jit
    def encode(tree):
        if not isinstance(tree, tuple):
            return tree
        left, right = encode(tree[0]), encode(tree[1])
        joined = T.tanh(T.concat([left, right]) @ mix)
        return joined if T.sum(joined) > 0 else -joined

    a, b, c = T.tensor([1.0, 2.0]), T.tensor([-1.0, 0.5]), T.tensor([0.3, 0.3])
    yield encode(((a, b), c))
    yield encode((a, (b, (c, a))))
    yield encode((a, b))


@program([V([[0, 0, 2, 2], [0.1, 0, 2, 2.1], [5, 5, 7, 7], [5, 5, 7.2, 7]])],
         [V([[0, 0, 2, 2], [3, 0, 4, 2.1], [5, 5, 7, 7], [8, 5, 9, 7]])])
def non_maximum_suppression(boxes):
    """Boxes come in the order of their scores; a box that overlaps one kept before is dropped."""
    kept = []
    for k in range(4):
        box, keep = boxes[k], True
        for other in kept:
            wide = T.minimum(box[2], other[2]) - T.maximum(box[0], other[0])
            high = T.minimum(box[3], other[3]) - T.maximum(box[1], other[1])
            if wide > 0 and high > 0:
                common = wide * high
                area = (box[2] - box[0]) * (box[3] - box[1]) + (other[2] - other[0]) * (other[3] - other[1])
                if common / (area - common) > 0.5:
                    keep = False
                    break
        if keep:
            kept.append(box)
    return len(kept), sum(kept)


@program([V([[0, 0, 2, 2], [0.1, 0, 2, 2.1], [5, 5, 7, 7], [5, 5, 7.2, 7]])],
         [V([[0, 0, 2, 2], [3, 0, 4, 2.1], [5, 5, 7, 7], [8, 5, 9, 7]])])
def non_maximum_suppression_by_flags(boxes):
    alive = T.ones(4)
    for i in range(4):
        for j in range(i + 1, 4):
            wide = T.relu(T.minimum(boxes[i][2], boxes[j][2]) - T.maximum(boxes[i][0], boxes[j][0]))
            high = T.relu(T.minimum(boxes[i][3], boxes[j][3]) - T.maximum(boxes[i][1], boxes[j][1]))
            if alive[i] > 0 and wide * high > 2.0:
                alive = T.put(alive, j, 0.0)
    return alive


@program([V.random(5, 3, seed=1), V(0.1, 0.2, 0.3)], [V.random(5, 3, seed=2), V(-0.5, 0.2, 0.0)])
def recurrent_cell_with_a_reset(inputs, h):
    for x in inputs:
        h = T.tanh(h * 0.5 + x)
        if T.sum(h) < -1.0:
            h = h * 0.0
    return h


@program
def adaptive_computation_time(x):
    halted, state, steps = T.sum(x) * 0.0, x, 0
    while halted < 0.99 and steps < 10:
        state = T.tanh(state + 0.1)
        p = T.sigmoid(T.sum(state) * 0.3)
        halted = halted + T.minimum(p, 1.0 - halted)
        steps += 1
    return state, steps


@program([V.random(6, 2, seed=3), V([[0, 0], [1, 1]])], [V.random(6, 2, seed=4), V([[-1, 0], [1, 0]])])
def k_means(points, centers):
    for _ in range(5):
        sums, counts = [centers[0] * 0.0, centers[1] * 0.0], [0.0, 0.0]
        for p in points:
            k = 0 if T.sum((p - centers[0]) ** 2) < T.sum((p - centers[1]) ** 2) else 1
            sums[k] = sums[k] + p
            counts[k] += 1.0
        centers = T.stack([s / c if c > 0 else center for s, c, center in zip(sums, counts, centers)])
    return centers


@session
def training_until_the_loss_is_small(jit):
    class Line:
        def __init__(self):
            self.w, self.losses = T.tensor([0.0, 0.0]), []

    model = Line()

    @jit
    def fit(x, target):
        loss = lambda w: T.sum((x * w - target) ** 2)
        for _ in range(20):
            if loss(model.w) < 1e-3:
                break
            model.w = model.w - 0.1 * T.grad(loss)(model.w)
        model.losses.append(loss(model.w))
        return model.w

    yield fit(T.tensor([1.0, 2.0]), T.tensor([2.0, 2.0])), list(model.losses)
    yield fit(T.tensor([1.0, 0.5]), T.tensor([3.0, 3.0])), list(model.losses)


@session
def scheduled_sampling(jit):
    embed, mix = weights(EMBED), weights(MIX)

    @jit
    def run(tokens, teacher):
        token, total = tokens[0], T.sum(embed) * 0.0
        for k in range(1, 4):
            logits = row(embed, token) @ mix
            total = total + logits[0]
            token = tokens[k] if teacher[k] > 0.5 else T.cast(T.argmax(logits), "int32")
        return total

    tokens = T.tensor([1, 2, 3, 4], "int32")
    for flags in ([1.0] * 4, [0.0] * 4, [0.0, 1.0, 0.0, 1.0]):
        yield run(tokens, T.tensor(flags))


@program
def reject_outliers_and_average(x):
    mean = T.sum(x) / 4.0
    kept, count = T.sum(x) * 0.0, 0
    for k in range(4):
        if T.abs(x[k] - mean) < 2.0:
            kept = kept + x[k]
            count += 1
    return kept / count if count else mean


@session
def loss_scaling(jit):
    class Scaler:
        def __init__(self):
            self.scale, self.good = 1024.0, 0

    scaler = Scaler()

    @jit
    def step(gradient):
        scaled = gradient * scaler.scale
        if T.any(T.isnan(scaled)) or T.max(T.abs(scaled)) > 1e6:
            scaler.scale = scaler.scale / 2.0
            scaler.good = 0
            return gradient * 0.0
        scaler.good += 1
        return scaled

    for values in ([1.0, 2.0], [1e4, 1.0], [float("nan"), 1.0], [1.0, 3.0]):
        yield step(T.tensor(values)), scaler.scale, scaler.good
