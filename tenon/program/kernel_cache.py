"""What is known of a kernel <-> the disk, beside its machine code, so that a second process need not lower it again.

An entry is one line of JSON, the facts, and then the object code, if it was ever made: where a kernel is only used in a
variant whose outputs have the memory of inputs, that is in an entry of its own.  The key is all that decides both: the
text of the body, the source of Tenon, the processor and LLVM.  Bodies with operators of users are not kept, since their
text does not say what they mean.
"""

from __future__ import annotations

import ast
import json
from collections import OrderedDict

from tenon.dims.parse_dims import parse_dim
from tenon.graph.ir import Graph
from tenon.graph.text import parse_type
from tenon.llvm import machine_code
from tenon.llvm.code_cache import make_key
from tenon.llvm.fingerprint import fingerprint
from tenon.program.kernel_metadata import Check, KernelMetadata, Shared
from tenon.target import Target

MAX_KNOWN = 4096        # kernels that this process remembers

_known: OrderedDict[str, KernelMetadata] = OrderedDict()


def key_for(text: str, body: Graph, target: Target, shared: Shared = ()) -> str | None:
    """The name under which a kernel is kept; None where its text does not say all that it means."""
    version = fingerprint()
    if version is None or not all(node.op.is_own for node in body.nodes):
        return None
    return make_key("unit", version, text, repr(shared), *machine_code.environment(target))


def find(key: str) -> tuple[KernelMetadata, bytes | None] | None:
    """What this process, or an earlier one, found out about the kernel, with its object code where that was read."""
    facts = _known.get(key)
    if facts is not None:
        _known.move_to_end(key)
        return facts, None
    line, _, code = (machine_code.stored(key) or b"").partition(b"\n")
    return (_remember(key, _decoded(line)), code or None) if line else None


def code_of(key: str) -> bytes | None:
    """The object code of a kernel on the disk."""
    return (machine_code.stored(key) or b"").partition(b"\n")[2] or None


def store_kernel(key: str, facts: KernelMetadata, code: bytes = b"") -> None:
    """Remember both."""
    _remember(key, facts)
    machine_code.store(key, _encoded(facts) + b"\n" + code)


def _remember(key: str, facts: KernelMetadata) -> KernelMetadata:
    _known[key] = facts
    if len(_known) > MAX_KNOWN:
        _known.popitem(last=False)
    return facts


def _encoded(facts: KernelMetadata) -> bytes:
    return json.dumps({
        "stages": facts.stages, "temporaries": [str(type) for type in facts.temporaries],
        "scratch": facts.scratch if isinstance(facts.scratch, int) else str(facts.scratch),
        "in_place": sorted(facts.in_place), "sizes": facts.sizes,
        "checks": [[check.node, check.operator] for check in facts.checks]}).encode()


def _decoded(line: bytes) -> KernelMetadata:
    fields = json.loads(line)
    scratch = fields["scratch"]
    return KernelMetadata(
        stages=fields["stages"], temporaries=tuple(map(parse_type, fields["temporaries"])),
        scratch=scratch if isinstance(scratch, int) else parse_dim(ast.parse(scratch, mode="eval").body),
        in_place=frozenset((output, source) for output, source in fields["in_place"]),
        sizes=tuple(fields["sizes"]), checks=tuple(Check(node, operator) for node, operator in fields["checks"]))
