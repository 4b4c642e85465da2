"""A hundred mistakes of users: what is written with Tenon, the words that its message must have, and the same with
PyTorch, where there is such a thing.

`X` and `Y` are f32[2, 3] and f32[4, 5], `I` whole numbers, `N` a network of 3 to 2 features.
"""

import linecache

MISTAKES = """
X @ Y | matmul, f32[2, 3], f32[4, 5] | X @ Y
X @ X | matmul, f32[2, 3] | X @ X
X + Y | add, [2, 3], [4, 5] | X + Y
X * tn.ones(2) | multiply, [2, 3], [2] | X * torch.ones(2)
tn.where(X > 0, X, Y) | where, [2, 3], [4, 5] | torch.where(X > 0, X, Y)
tn.maximum(X, tn.ones(4)) | maximum, [2, 3], [4] | torch.maximum(X, torch.ones(4))
X.reshape(4, 2) | reshape, f32[2, 3], [4, 2] | X.reshape(4, 2)
X.reshape(-1, 4) | reshape, 6 elements, [-1, 4] | X.reshape(-1, 4)
X.sum(axis=2) | sum, axis 2 | X.sum(2)
X.mean(axis=-3) | mean, axis -3 | X.mean(-3)
X.transpose(0, 2) | 2 is out of range | X.transpose(0, 2)
X.permute((0, 0)) | permute, twice | X.permute((0, 0))
tn.squeeze(X, 0).unsqueeze(5) | squeeze, axis | X.squeeze(0).unsqueeze(5)
tn.concat([X, Y]) | concat, f32[2, 3], f32[4, 5] | torch.cat([X, Y])
tn.stack([X, Y]) | stack, f32[2, 3], f32[4, 5] | torch.stack([X, Y])
tn.concat([]) | concat | torch.cat([])
tn.split(X, 4, axis=1) | split, f32[2, 3], 4 | X.tensor_split('a')
tn.einsum("ij,jk->ik", X, Y) | einsum, 'j' | torch.einsum("ij,jk->ik", X, Y)
tn.einsum("ij->iz", X) | einsum, 'z' | torch.einsum("ij->iz", X)
tn.broadcast_to(X, (4, 3)) | broadcast_to, [2, 3], [4, 3] | X.expand(4, 3)
tn.tile(X, "2") | '2' | X.tile("2")
X[2] | index 2, size 2 | X[2]
X[0, 3] | index 3, size 3 | X[0, 3]
X[0, 0, 0] | 3 indices, 2 axes | X[0, 0, 0]
X["a"] | str | X["a"]
X[1.0] | float | X[1.0]
X[I + 7] | index, size 2 | X[I + 7]
X[tn.ones((3, 3)) > 0] | [3, 3], [2, 3] | X[torch.ones((3, 3)) > 0]
tn.gather(X, tn.tensor([[0.5]]), axis=1) | gather, f32 | torch.gather(X, 1, torch.tensor([[0.5]]))
tn.take(X, tn.tensor([5]), axis=1) | take, index 5, size 3 | torch.index_select(X, 1, torch.tensor([5]))
tn.jit(lambda x, i: x[i])(X, I + 7) | index, size 2 | torch.take(X, I + 70)
tn.jit(lambda i, w: F.embedding(i, w))(I + 9, X) | index, size 2 | torch.nn.functional.embedding(I + 9, X)
tn.one_hot(tn.tensor([0, 3]), 3) | one_hot, 3 | torch.nn.functional.one_hot(torch.tensor([0, 3]), 3)
N(tn.ones((2, 5))) | linear, f32[2, 5], f32[2, 3] | N(torch.ones((2, 5)))
nn.Conv2d(3, 4, 3)(tn.ones((2, 5, 8, 8))) | conv, f32[2, 5, 8, 8], 3 | torch.nn.Conv2d(3, 4, 3)(torch.ones((2, 5, 8, 8)))
nn.Conv2d(3, 4, 5)(tn.ones((2, 3, 4, 4))) | conv, 5, 4 | torch.nn.Conv2d(3, 4, 5)(torch.ones((2, 3, 4, 4)))
nn.LayerNorm(4)(X) | layer_norm, f32[2, 3], [4] | torch.nn.LayerNorm(4)(X)
nn.BatchNorm2d(4)(tn.ones((2, 5, 3, 3))) | batch_norm, f32[2, 5, 3, 3], 4 | torch.nn.BatchNorm2d(4)(torch.ones((2, 5, 3, 3)))
nn.Embedding(3, 4)(tn.tensor([5])) | take, index 5, size 3 | torch.nn.Embedding(3, 4)(torch.tensor([5]))
nn.Embedding(3, 4)(tn.tensor([0.5])) | integers, f32[1] | torch.nn.Embedding(3, 4)(torch.tensor([0.5]))
nn.Dropout(1.5) | Dropout, 1.5 | torch.nn.Dropout(1.5)
nn.Linear(3.0, 2) | Linear, 3.0 | torch.nn.Linear(3.0, 2)
F.max_pool2d(tn.ones((1, 3, 2, 2)), 5) | max_pool, 5, 2 | torch.nn.functional.max_pool2d(torch.ones((1, 3, 2, 2)), 5)
F.cross_entropy(X, tn.tensor([0, 1, 2])) | cross_entropy, f32[2, 3], i64[3] | torch.nn.functional.cross_entropy(X, torch.tensor([0, 1, 2]))
F.cross_entropy(X, tn.tensor([0.0, 1.0])) | cross_entropy, f32[2, 3], f32[2] | torch.nn.functional.cross_entropy(X, torch.tensor([0.0, 1.0]))
F.cross_entropy(X, tn.tensor([0, 3])) | cross_entropy, 3 | torch.nn.functional.cross_entropy(X, torch.tensor([0, 3]))
F.mse_loss(X, Y) | mse_loss, f32[2, 3], f32[4, 5] | torch.nn.functional.mse_loss(X, Y)
F.binary_cross_entropy(X, Y) | binary_cross_entropy, f32[2, 3], f32[4, 5] | torch.nn.functional.binary_cross_entropy(X, Y)
F.nll_loss(X, tn.tensor([0.5, 1.0])) | nll_loss, f32 | torch.nn.functional.nll_loss(X, torch.tensor([0.5, 1.0]))
X.backward() | backward | X.backward()
(P * 2).backward() | scalar, f32[2, 3] | (P * 2).backward()
twice_backward(tn) | second time, retain_graph | twice_backward(torch)
tn.tensor([1, 2], requires_grad=True) | int64 | torch.tensor([1, 2], requires_grad=True)
in_place_on_leaf(tn) | leaf | in_place_on_leaf(torch)
tn.grad(lambda x: x * 2)(X) | grad, f32[2, 3], scalar | torch.func.grad(lambda x: x * 2)(X)
tn.grad(lambda x: x.sum())(tn.tensor([1, 2])) | grad, i64[2] | torch.func.grad(lambda x: x.sum())(torch.tensor([1, 2]))
tn.autograd.grad(P.sum(), X) | grad, require | torch.autograd.grad(P.sum(), X)
tn.autograd.grad(P.sum(), P2) | depend | torch.autograd.grad(P.sum(), P2)
X.item() | item, f32[2, 3] | X.item()
bool(X > 0) | truth | bool(X > 0)
int(X) | one element, f32[2, 3] | int(X)
len(tn.tensor(3.0)) | scalar | len(torch.tensor(3.0))
X & X | bitwise_and, float32 | X & X
~X | float32 | ~X
X << 1 | float32 | X << X
-tn.tensor([True]) | negative, bool | -torch.tensor([True])
tn.tensor([True]) - tn.tensor([True]) | subtract, bool | torch.tensor([True]) - torch.tensor([True])
tn.tensor([1, 2]) ** -1 | power, negative | torch.tensor([1, 2]) ** -1
X + "1" | add, str | X + "1"
X + None | add, not None | X + None
tn.exp("hello") | exp, str | torch.exp("hello")
tn.exp([1.0, 2.0]) | exp, list | torch.exp([1.0, 2.0])
tn.exp(X, 4, 5) | exp | torch.exp(X, 4, 5)
tn.exp() | exp, missing | torch.exp()
tn.sum(X, axes=1) | sum, axes | torch.sum(X, axes=1)
tn.zeros((2, -1)) | [2, -1] | torch.zeros((2, -1))
tn.zeros("a") | 'a' | torch.zeros("a")
tn.zeros((2, 3), dtype="float99") | float99 | torch.zeros((2, 3), dtype="float99")
tn.tensor("abc") | str | torch.tensor("abc")
tn.tensor([[1, 2], [3]]) | tensor | torch.tensor([[1, 2], [3]])
tn.arange(0, 10, 0) | arange, step | torch.arange(0, 10, 0)
tn.topk(tn.ones(3), 5) | topk, 5, 3 | torch.topk(torch.ones(3), 5)
tn.argmax(tn.ones((0,))) | argmax, empty | torch.argmax(torch.ones((0,)))
tn.bernoulli(2.0) | bernoulli, 2.0 | torch.bernoulli(torch.tensor(2.0))
tn.randint(5, 1, (3,)) | randint, 5, 1 | torch.randint(5, 1, (3,))
tn.linalg.inv(X) | inv, f32[2, 3] | torch.linalg.inv(X)
tn.linalg.inv(tn.zeros((2, 2))) | inv, singular | torch.linalg.inv(torch.zeros((2, 2)))
tn.linalg.cholesky(-tn.ones((2, 2))) | cholesky, positive definite | torch.linalg.cholesky(-torch.ones((2, 2)))
tn.linalg.solve(tn.ones((2, 2)), tn.ones(3)) | solve, f32[2, 2], f32[3 | torch.linalg.solve(torch.ones((2, 2)), torch.ones(3))
optim.SGD([], lr=0.1) | SGD, no parameters | torch.optim.SGD([], lr=0.1)
optim.SGD(P, lr=0.1) | SGD, tensor | torch.optim.SGD(P, lr=0.1)
optim.SGD(N, lr=0.1) | SGD, Linear | torch.optim.SGD(N, lr=0.1)
optim.Adam(N.parameters(), lr=-1.0) | Adam, -1 | torch.optim.Adam(N.parameters(), lr=-1.0)
N.load_state_dict({"weight": tn.ones((2, 3)), "wieght": tn.ones(2)}) | wieght | N.load_state_dict({"weight": torch.ones((2, 3)), "wieght": torch.ones(2)})
N.load_state_dict({"weight": tn.ones((3, 2)), "bias": tn.ones(2)}) | weight, [2, 3], [3, 2] | N.load_state_dict({"weight": torch.ones((3, 2)), "bias": torch.ones(2)})
tn.jit(3) | jit, int | torch.compile(3)
tn.ones(3).assign(tn.ones(4)) | assign, f32[3], f32[4] | torch.ones(3).copy_(torch.ones(4))
X.view(5) | f32[2, 3], [5] | X.view(5)
tn.softmax(X, axis=2) | softmax, axis 2 | torch.softmax(X, 2)
F.conv2d(X, Y) | conv | torch.nn.functional.conv2d(X, Y)
F.scaled_dot_product_attention(tn.ones((1, 2, 3, 4)), tn.ones((1, 2, 3, 5)), tn.ones((1, 2, 3, 5))) | f32[1, 2, 3, 4], f32[1, 2, 3, 5] | torch.nn.functional.scaled_dot_product_attention(torch.ones((1, 2, 3, 4)), torch.ones((1, 2, 3, 5)), torch.ones((1, 2, 3, 5)))
"""
ROWS = [tuple(part.strip() for part in line.split(" | ")) for line in MISTAKES.strip().splitlines()]


def twice_backward(lib):
    x = lib.ones(2).requires_grad_()
    y = (x * x).sum()
    y.backward()
    y.backward()


def in_place_on_leaf(lib):
    x = lib.ones(2).requires_grad_()
    x += 1.0


def names(lib):
    p, q = lib.ones((2, 3)).requires_grad_(), lib.ones(2).requires_grad_()
    return {"X": lib.ones((2, 3)), "Y": lib.ones((4, 5)), "I": lib.tensor([0, 1]), "N": lib.nn.Linear(3, 2), "P": p,
            "P2": q, "twice_backward": twice_backward, "in_place_on_leaf": in_place_on_leaf}


def error_of(code, scope, number):
    """What a line raises, which the message can quote."""
    source, file = f"result = {code}\n", f"mistake_{number}.py"
    linecache.cache[file] = (len(source), None, [source], file)
    try:
        exec(compile(source, file, "exec"), scope)
    except Exception as error:
        return error
    return None
