"""Worked examples that are also of use: products and convolutions of dense row-major arrays, as contractions.

    matmul(F32, left="km")      void f(out, left, right, i64 batch, i64 m, i64 n, i64 k, ...), left stored transposed
    convolution(F32, ...)       void f(out, image, weight, ...), sizes fixed
"""
from llvmlite import ir

from tenon.backends.cpu.contraction.gemm_spec import Args, GemmSpec, Index, Operand, Size
from tenon.backends.cpu.contraction.ir_helpers import I64, POINTER, address, const, element_bytes, zero
from tenon.llvm.host_target import host
from tenon.target import Target

F32, F64 = ir.FloatType(), ir.DoubleType()


def argument(place: int) -> Size:
    return lambda b, args: args[place]


def fixed(size: int) -> Size:
    return lambda b, args: const(size)


def matmul(element: ir.Type, left: str = "mk", right: str = "kn", bias_relu: bool = False,
           known: tuple[int, int, int] | None = None, machine: Target | None = None) -> GemmSpec:
    """out[g] = left[g] @ right[g], each stored as its letters say; the last argument is a bias of n if asked for.

    The sizes m, n, k are arguments, and may be known nevertheless.
    """
    sizes = {"m": 4, "n": 5, "k": 6}

    def operand(place: int, letters: str, outer: str) -> Operand:
        def pointer(b: ir.IRBuilder, args: Args, g: Index, i: Index, k: Index) -> ir.Value:
            index, extent = {outer: i[0], "k": k[0]}, {letter: args[where] for letter, where in sizes.items()}
            line = b.add(b.mul(g[0], extent[letters[0]]), index[letters[0]])
            return address(b, args[place], b.add(b.mul(line, extent[letters[1]]), index[letters[1]]), element)
        apart = dict(zip("mnk", known))[letters[1]] if known else None
        return Operand(pointer=pointer, contiguous="depth" if letters[1] == "k" else "outer", apart=apart)

    def store(b: ir.IRBuilder, args: Args, g: Index, m: ir.Value, n: ir.Value, value: ir.Value, lanes: int) -> None:
        if bias_relu:
            bias = b.load(address(b, args[7], n, element), typ=value.type, align=element_bytes(element))
            value = b.fadd(value, bias)
            value = b.select(b.fcmp_ordered(">", value, zero(value.type)), value, zero(value.type))
        b.store(value, target(b, args, g, m, n), align=element_bytes(element))

    def target(b: ir.IRBuilder, args: Args, g: Index, m: ir.Value, n: ir.Value) -> ir.Value:
        return address(b, args[0], b.add(b.mul(b.add(b.mul(g[0], args[4]), m), args[5]), n), element)

    arguments = (POINTER, POINTER, POINTER, I64, I64, I64, I64) + ((POINTER,) if bias_relu else ())
    rows, columns, depth = (fixed(known[i]) if known else argument(4 + i) for i in range(3))
    return GemmSpec(machine or host(), arguments, element, (argument(3),), (rows,), (columns,), (depth,),
                       operand(1, left, "m"), operand(2, right, "n"), store, stored_at=None if bias_relu else target,
                       known=known or (None, None, None))


def convolution(element: ir.Type, images: int, channels: int, height: int, width: int, filters: int, kernel: int,
                padding: int = 0, stride: int = 1, machine: Target | None = None) -> GemmSpec:
    """out[image, filter, y, x] = sum over channel, dy, dx of weight[filter, channel, dy, dx] * padded image[...]."""
    out_height, out_width = ((size + 2 * padding - kernel) // stride + 1 for size in (height, width))
    places = out_height * out_width

    def pixel(b: ir.IRBuilder, args: Args, g: Index, outer: Index, k: Index) -> ir.Value:
        (image, y, x), (channel, dy, dx) = outer, k
        row = b.sub(b.add(b.mul(y, const(stride)), dy), const(padding))
        column = b.sub(b.add(b.mul(x, const(stride)), dx), const(padding))
        line = b.add(b.mul(b.add(b.mul(image, const(channels)), channel), const(height)), row)
        return address(b, args[1], b.add(b.mul(line, const(width)), column), element)

    def inside(b: ir.IRBuilder, args: Args, g: Index, outer: Index, k: Index) -> tuple[ir.Value, ir.Value]:
        row = b.sub(b.add(b.mul(outer[1], const(stride)), k[1]), const(padding))
        low, high = (b.sub(const(edge + padding + stride - 1), k[2]) for edge in (0, width))     # both rounded up
        low, high = b.sdiv(low, const(stride)), b.sdiv(high, const(stride))
        return low, b.select(b.icmp_unsigned("<", row, const(height)), high, low)

    def weight(b: ir.IRBuilder, args: Args, g: Index, m: Index, k: Index) -> ir.Value:
        line = b.add(b.mul(m[0], const(channels)), k[0])
        line = b.add(b.mul(line, const(kernel)), k[1])
        return address(b, args[2], b.add(b.mul(line, const(kernel)), k[2]), element)

    def store(b: ir.IRBuilder, args: Args, g: Index, m: ir.Value, n: ir.Value, value: ir.Value, lanes: int) -> None:
        image, place = b.udiv(n, const(places)), b.urem(n, const(places))
        place = b.add(b.mul(b.add(b.mul(image, const(filters)), m), const(places)), place)
        b.store(value, address(b, args[0], place, element), align=element_bytes(element))

    image = Operand(pointer=pixel, contiguous="outer", step=stride, inside=inside, tapped=True)
    columns = fixed(images), fixed(out_height), fixed(out_width)       # of all images: the weights are read once
    return GemmSpec(machine or host(), (POINTER,) * 3, element, (), (fixed(filters),), columns,
                       (fixed(channels), fixed(kernel), fixed(kernel)),
                       Operand(pointer=weight, contiguous="depth", flat=True), image, store, store_run=fixed(places))
