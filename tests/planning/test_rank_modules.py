"""What a planner takes for a rank's part of GPT-2 computes it: on real threads, and beside the module that is whole."""

import threading
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Held
from tenon.dims.symbolic_dim import evaluate
from tenon.graph.ir import Graph
from tenon.models.gpt2 import MLP, Block, GPT2Config
from tenon.ops.communicator import speaking
from tenon.planning.cluster import load_cluster
from tenon.planning.device_graph import two_phases
from tenon.planning.node_work import MessageWork, WorkRules
from tenon.planning.shapes_only import hollow_tensor, shapes_only
from tenon.planning.tensor_parallel_gpt import RankBlock, RankEmbedding, RankHead, RankMLP, TensorParallel
from tenon.runtime.local_transport import LocalTransport
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Sharding
from tenon.sharding.spmd_partition import partition

CONFIG = GPT2Config(vocab_size=12, n_positions=6, n_embd=12, n_layer=1, n_head=6)


def on_ranks(count: int, run: Any) -> list[Any]:
    """What each rank makes, in threads that speak to each other."""
    found: list[Any] = [None] * count
    speakers = LocalTransport(Mesh({"model": count})).begin()

    def one(rank: int) -> None:
        with speaking(speakers[rank]):
            try:
                found[rank] = run(rank)
            except Exception as error:
                found[rank] = error
                speakers[rank].abort(error)
            finally:
                speakers[rank].close()
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for x in found:
        if isinstance(x, Exception):
            raise x
    return found


def columns(weight: np.ndarray, groups: int, rank: int, parts: int) -> np.ndarray:
    """A rank's part of each of some groups of columns."""
    return np.concatenate([np.array_split(x, parts, axis=-1)[rank] for x in np.split(weight, groups, axis=-1)], axis=-1)


def part_of(whole: Block, split: TensorParallel, rank: int) -> RankBlock:
    made = RankBlock(CONFIG, split).to("float64")
    for name, p in whole.named_parameters():
        value = p.numpy()
        if "c_attn" in name:
            value = columns(value, 3, rank, split.parts)
        elif "c_fc" in name:
            value = columns(value, 1, rank, split.parts)
        elif name.endswith("c_proj.weight"):
            value = np.array_split(value, split.parts)[rank]
        with tn.no_grad():
            dict(made.named_parameters())[name].copy_(tn.tensor(value))
    return made


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_ranks_compute_the_block_and_its_gradient(parts: int, sequence: bool, recompute: bool) -> None:
    tn.manual_seed(0)
    whole = Block(CONFIG).to("float64")
    with tn.no_grad():
        for p in whole.parameters():
            p.copy_(tn.randn(*p.shape, dtype="float64") * 0.3)
    x, g = tn.randn(2, 6, 12, dtype="float64"), tn.randn(2, 6, 12, dtype="float64")
    x.requires_grad = True
    y = whole(x, None, 0, None)
    y.backward(g)
    split = TensorParallel(parts, sequence and parts > 1, recompute)

    def run(rank: int) -> Any:
        own = slice(None) if not split.sequence else slice(rank * 6 // parts, (rank + 1) * 6 // parts)
        mine, block = tn.tensor(x.numpy()[:, own], requires_grad=True), part_of(whole, split, rank)
        made = block(mine, None, 0, None)
        made.backward(tn.tensor(g.numpy()[:, own]))
        return own, made.numpy(), mine.grad.numpy(), block.mlp.c_fc.weight.grad.numpy()
    for rank, (own, made, gradient, weight) in enumerate(on_ranks(parts, run)):
        np.testing.assert_allclose(made, y.numpy()[:, own], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(gradient, x.grad.numpy()[:, own], rtol=1e-9, atol=1e-12)
        expected = columns(whole.mlp.c_fc.weight.grad.numpy(), 1, rank, parts)
        np.testing.assert_allclose(weight, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_ranks_compute_the_embedding_and_the_loss(parts: int, sequence: bool) -> None:
    tn.manual_seed(1)
    split = TensorParallel(parts, sequence and parts > 1)
    table, places = tn.randn(12, 12, dtype="float64"), tn.randn(6, 12, dtype="float64")
    ids, following = tn.randint(0, 12, (2, 6)), tn.randint(0, 12, (2, 6))
    x = (table[ids] + places).detach()
    x.requires_grad = True
    loss = tn.cross_entropy((tn.nn.functional.layer_norm(x, (12,)) @ table.T).reshape(-1, 12), following.reshape(-1))
    loss.backward()

    def run(rank: int) -> Any:
        rows, own = slice(rank * 12 // parts, (rank + 1) * 12 // parts), slice(None)
        if split.sequence:
            own = slice(rank * 6 // parts, (rank + 1) * 6 // parts)
        embedding, head = (kind(CONFIG, split).to("float64") for kind in (RankEmbedding, RankHead))
        with tn.no_grad():
            embedding.wte.weight.copy_(table[rows])
            embedding.wpe.weight.copy_(places)
            head.wte.weight.copy_(table[rows])
        made = embedding(ids)
        entered = tn.tensor(made.numpy(), requires_grad=True)
        found = head(entered, following)
        found.backward()
        made.backward(entered.grad)
        return own, made.numpy(), float(found), entered.grad.numpy()
    for own, made, found, gradient in on_ranks(parts, run):
        np.testing.assert_allclose(made, x.numpy()[:, own], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(gradient, x.grad.numpy()[:, own], rtol=1e-8, atol=1e-12)
        assert found == pytest.approx(float(loss), rel=1e-9)


def test_nothing_of_the_sizes_is_made() -> None:
    """A layer of a trillion parameters' model: 8 billion parameters, a hundred gigabytes of activations."""
    config = GPT2Config(vocab_size=51200, n_positions=2048, n_embd=25600, n_head=160)
    with shapes_only():
        head = RankHead(config, TensorParallel(8)).to("float16")
    made = []

    def arguments(batch: int) -> list[tn.Tensor]:
        x = hollow_tensor((batch, 2048, 25600), "float16")
        x.requires_grad = True
        made.append(x)
        return [x, hollow_tensor((batch, 2048), "int64")]
    phases = two_phases(head, arguments, list(head.parameters()), load_cluster("a100").chip)
    assert {node.op.name for node in phases.forward.nodes} >= {"all_reduce"}
    assert sum(evaluate(t.size, {phases.batch: 64}) * t.dtype.itemsize for t in phases.kept) > 10e9
    assert all(x.numpy().strides == (0, 0, 0) for x in made)


def test_partition_finds_the_messages_of_a_rank() -> None:
    """A network with columns, then rows: one sum over the ranks forward, and one backward, of the same bytes."""
    config, mesh = GPT2Config(n_positions=256, n_embd=1024, n_layer=1, n_head=16), Mesh({"model": 4})
    with shapes_only():
        whole, rank = MLP(config), RankMLP(config, TensorParallel(4))

    def arguments(batch: int) -> list[tn.Tensor]:
        x = hollow_tensor((batch, 256, 1024))
        x.requires_grad = True
        return [x]

    def both(x: tn.Tensor, seed: tn.Tensor) -> Any:
        y = whole(x)
        y.backward(seed)
        return (y, x.grad, *(p.grad for p in whole.parameters()))
    captured = Jitted(both, fullgraph=True).capture(*arguments(2), hollow_tensor((2, 256, 1024)))
    split = {id(whole.c_fc.weight): (None, "model"), id(whole.c_fc.bias): ("model",),
             id(whole.c_proj.weight): ("model", None)}
    specs = [split.get(id(s.holder)) if isinstance(s, Held) else None for s in captured.sources]
    results = [None, None, *(split.get(id(p)) for p in whole.parameters())]
    local = partition(captured.graph, *([s and Sharding(mesh, s) for s in specs], mesh, 0),
                      results=[s and Sharding(mesh, s) for s in results])
    phases = two_phases(rank, arguments, list(rank.parameters()), load_cluster("a100").chip)

    def said(*graphs: Graph) -> list[Any]:
        rules = WorkRules(load_cluster("a100").chip, sizes={phases.batch: 2})
        return sorted((w.kind, w.bytes, w.over) for graph in graphs for node in graph.nodes for w in rules.of(node)
                      if isinstance(w, MessageWork))
    assert said(local) == said(phases.forward, phases.backward) == 2 * [("all_reduce", 4.0 * 2 * 256 * 1024, ("model",))]
