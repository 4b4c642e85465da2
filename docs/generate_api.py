"""The public names of `tn` and its namespaces, except operators -> reference pages, from their docstrings."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from render import contents, fence, markdown, signature

import tenon as tn
from tenon.graph.op import Op
from tenon.types import DType

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")


@dataclass
class Page:
    """A title, words above the entries, where the names are looked up, and the names (None: all public ones)."""

    title: str
    doc: str
    module: Any
    prefix: str
    names: tuple[str, ...] | None = None


PAGES = {
    "tensors": Page("Tensors", "What eager code holds: elements, a gradient, and how they are made.", tn, "tn", (
        "Tensor", "tensor", "asarray", "from_dlpack", "stop_gradient", "no_grad", "enable_grad", "is_grad_enabled",
        "autocast", "is_autocast_enabled", "get_autocast_dtype", "save", "load", "device", "devices", "set_devices",
        "broadcast_shapes", "result_type", "can_cast", "isdtype", "finfo", "iinfo", "dtype")),
    "jit": Page("Compiling", "One decorator, and what can be asked about it.", tn, "tn", ("jit", "explain", "Graph")),
    "control": Page("Control flow", "Branches and loops that are nodes of a graph.", tn, "tn", (
        "cond", "switch", "while_loop", "scan", "fori_loop", "map")),
    "transforms": Page("Derivatives and batches", "Functions of functions.", tn, "tn", (
        "grad", "value_and_grad", "vjp", "jvp", "jacobian", "jacrev", "jacfwd", "hessian", "hvp", "vmap", "checkpoint",
        "custom_vjp")),
    "autograd": Page("Gradients by PyTorch's names", "", tn.autograd, "tn.autograd"),
    "autograd_functional": Page("Derivatives of functions by PyTorch's names", "", tn.autograd.functional,
                                "tn.autograd.functional"),
    "extending": Page("Extending", "See [add an operator](../add_an_op.md), [a pass](../add_a_pass.md), "
                      "[a backend](../add_a_backend.md).", tn, "tn", (
                          "op", "kernel", "remove_kernel", "graph_pass", "remove_pass", "register_backend",
                          "remove_backend")),
    "random": Page("Random numbers", "", tn.random, "tn.random"),
    "distributions": Page("Probability distributions", "", tn.distributions, "tn.distributions"),
    "nn": Page("Layers and losses", "", tn.nn, "nn"),
    "nn_functional": Page("Layers as functions", "", tn.nn.functional, "nn.functional", (
        "scaled_dot_product_attention", "dropout", "alpha_dropout", "pad")),
    "nn_init": Page("Initial weights", "", tn.nn.init, "nn.init"),
    "models": Page("Models", "", tn.models, "tn.models"),
    "optim": Page("Optimizers", "", tn.optim, "optim"),
    "data": Page("Data", "", tn.data, "tn.data"),
    "fft": Page("Fourier transforms", "", tn.fft, "tn.fft"),
    "special": Page("Special functions", "", tn.special, "tn.special"),
    "tree": Page("Nests of tensors", "", tn.tree, "tn.tree"),
    "testing": Page("Tests", "", tn.testing, "tn.testing"),
    "debug": Page("Looking inside", "", tn.debug, "tn.debug"),
}


def pages() -> dict[str, str]:
    return {"index.md": index()} | {f"{name}.md": page(one) for name, one in PAGES.items()}


def index() -> str:
    return "\n\n".join(["# Reference", "Generated from the docstrings. Constants: "
                        + ", ".join(f"`tn.{name}`" for name in CONSTANTS) + ". Element types: "
                        + ", ".join(f"`tn.{name}`" for name in dtypes()) + ".",
                        contents([*PAGES, "operators/index"])]) + "\n"


def dtypes() -> list[str]:
    return [name for name in public_names(tn) if isinstance(getattr(tn, name), DType)]


def page(one: Page) -> str:
    doc = one.doc or markdown(inspect.getdoc(one.module) or "")
    found = [(name, getattr(one.module, name)) for name in one.names or documented(one.module)]
    return "\n\n".join([f"# {one.title}", doc, *(entry(f"{one.prefix}.{name}", value) for name, value in found)]) + "\n"


def documented(module: ModuleType) -> list[str]:
    """The public names of a namespace in the order of its files."""
    found = [name for name in public_names(module) if callable(getattr(module, name))]
    return sorted(found, key=lambda name: (not inspect.isclass(getattr(module, name)), name.lower()))


def public_names(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return [name for name in names if not isinstance(getattr(module, name), (ModuleType, Op))
            and getattr(getattr(module, name), "__module__", "tenon").startswith("tenon")]


def entry(name: str, value: Any) -> str:
    call = f"{name}{signature(value)}"
    parts = [f"## {name}", fence("python", f"class {call}" if inspect.isclass(value) else call),
             markdown(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        parts += [member(f"{name.rpartition('.')[2]}.{label}", one) for label, one in members(value)]
    return "\n\n".join(filter(None, parts))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class defines itself and explains."""
    for name, value in vars(kind).items():
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if not name.startswith("_") and (callable(value) or isinstance(value, property)) and inspect.getdoc(value) \
                and inspect.getdoc(value) != inspect.getdoc(getattr(kind.__mro__[1], name, None)):
            yield name, value


def member(name: str, value: Any) -> str:
    taken = "" if isinstance(value, property) else signature(value).replace("(self, ", "(").replace("(self)", "()")
    call = name + taken
    return "\n\n".join([f"### {name}", fence("python", call), markdown(inspect.getdoc(value) or "")])
