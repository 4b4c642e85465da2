"""Rows -> the order of their elements, as loops: the places in ascending order, those of equal elements as they come.

An element becomes a key, an unsigned integer that is ordered as elements are, NaN last.  Key and place are one word of
64 bits where both fit, else a column each.  In a short row the rank of a word is how many are smaller.  Longer rows are
ordered digit after digit, from the lowest one on: how often each digit occurs says where words go that have it (radix
sort).  A digit that all words share takes no pass, so small integers are as quick as narrow ones.

Where few places of many are wanted, the elements are dealt out to more groups than places.  The key that as many of the
groups' smallest do not exceed is found bit by bit, and only elements that do not exceed it are ordered.  For very few
places of a row that is not long, the smallest word of every block is known, and each word that is found is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.loops.cost import known
from tenon.loops.expressions import (
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    Expr,
    Index,
    Load,
    Local,
    Select,
    constant,
    identity,
    size,
)
from tenon.loops.loop_ir import Accumulator, Let, Loop, Stmt, Store, Update
from tenon.types import DType, TensorType, int32, int64, uint8, uint16, uint32, uint64

RADIX_BITS = 8          # bits of a pass of radix sort, whose counts stay in L1
MIN_SELECTED_ROW_ELEMENTS = 2048  # elements of a row of which few are chosen before they are ordered
MAX_RANKED_ELEMENTS = 64    # longer rows are not ordered by counting smaller elements
GROUPS_PER_PLACE = 4    # at least so many groups for each place that is wanted
MIN_GROUP_ELEMENTS = 4          # elements of a group: where there would be fewer, all elements are ordered
SKIP_BLOCK = 64         # elements that are passed over together if none is among the first
# places, of so many times as many elements, that are looked for one by one,
MAX_SEARCHED_PLACES, MIN_SEARCH_RATIO = 32, 2
NOT_LONG = 1 << 16              # where these are so many at most
PLACE = 32                      # bits beside the key in a word
UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


def key_of(x: Expr, descending: bool) -> Expr:
    """An unsigned integer that is ordered as elements are: zeros of both signs are equal, NaN is the largest."""
    bits = x.dtype.bits
    unsigned, top, every = UNSIGNED[bits], 1 << (bits - 1), (1 << bits) - 1
    if x.dtype.kind == "f":
        zero = constant(0, x.dtype)
        pattern = BitsOf(Select(Binary("==", x, zero), zero, x), unsigned)
        turned = Select(pattern >= top, constant(every, unsigned), constant(top, unsigned))
        key: Expr = Select(Call("isnan", (x,)), constant(every, unsigned), pattern ^ turned)
    else:
        key = BitsOf(x, unsigned) ^ top if x.dtype.kind == "i" else Cast(x, unsigned)
    return key ^ every if descending else key


class Ordering:
    """Statements that order one row of so many elements of a type, as far as its `first` ones."""

    def __init__(self, dtype: DType, count: Dim, first: Dim):
        self.count, self.dtype = count, dtype
        self.packed = dtype.bits <= PLACE and (not isinstance(count, int) or count < 1 << PLACE)
        self.shift = PLACE if self.packed else 0
        few = isinstance(first, int) and isinstance(count, int)
        self.few = few and 0 < known(first) <= MAX_SEARCHED_PLACES and \
            known(first) * MIN_SEARCH_RATIO <= known(count) <= NOT_LONG
        blocks = -(-count // SKIP_BLOCK)
        self.columns = self._buffers("", blocks * SKIP_BLOCK + first if self.few else count * 2)
        self.minima = self._buffers("_of_blocks", blocks)
        self.passes = dtype.bits // RADIX_BITS
        self.ranked = isinstance(count, int) and count <= MAX_RANKED_ELEMENTS and not self.few
        groups = -(-GROUPS_PER_PLACE * first // SKIP_BLOCK) * SKIP_BLOCK if isinstance(first, int) else 0
        self.chosen = few and not self.few and known(count) > MIN_SELECTED_ROW_ELEMENTS and \
            0 < groups <= known(count) // MIN_GROUP_ELEMENTS
        self.counts = Buffer("counts", TensorType(int64, (self.passes << RADIX_BITS,)), "local")
        self.first, self.smallest = first, Buffer("smallest", TensorType(UNSIGNED[dtype.bits], (groups,)), "local")
        self.turned = Local("turned", int64)        # how many passes there were; each moves the words to the other half
        self.key = Local("key", UNSIGNED[dtype.bits])
        self.found = Local("found", int64)          # how many words are to be ordered

    @property
    def buffers(self) -> list[Buffer]:
        return [*self.columns, *([] if self.ranked or self.few else [self.counts]),
                *(self.minima if self.few else []), *([self.smallest] if self.chosen else [])]

    def _buffers(self, name: str, count: Dim) -> list[Buffer]:
        """So many words."""
        return [Buffer(column + name, TensorType(dtype, (count,)), "local") for column, dtype in
                ([("words", uint64)] if self.packed else [("keys", uint64), ("places", int64)])]

    @property
    def work(self) -> Dim:
        """About how many operations a row takes."""
        return self.count * (self.count if self.ranked else 4 if self.few else 4 * self.passes)

    def statements(self, element: Callable[[Expr], Expr], descending: bool) -> list[Stmt]:
        """`element` is what stands at a place of the row."""
        k, value, key = Index("k", self.count), Local("element", self.dtype), self.key

        def given(at: Expr) -> list[Stmt]:
            return [Let(value, element(at)), Let(key, key_of(value, descending))]
        if self.ranked:
            return [Loop(k, size(self.count), (*given(k), *self._kept(k, k))), self._rank(size(self.count))]
        if self.few:
            return [Loop(k, size(self.count), (*given(k), *self._kept(k, k)), "vector"), *self._one_by_one()]
        found: list[Stmt] = [Accumulator(self.turned, "add"), Accumulator(self.found, "add")]
        if self.chosen:
            found += [*self._choose(given), self._clear(), Loop(k, self.found, (*self._read(k), *self._counted()))]
        else:
            found += [Update(self.found, "add", size(self.count)), self._clear(),
                      Loop(k, size(self.count), (*given(k), *self._kept(k, k), *self._counted()))]
        for number in range(self.passes):
            found += self._pass(number, k)
        return found

    def place(self, at: Expr) -> Expr:
        """The place of the element that comes there."""
        start = self._half
        if self.few:
            start = size(self.minima[0].elements * SKIP_BLOCK)
        elif self.ranked:
            start = size(self.count)
        return self._place_in(Load(self.columns[-1], start + at, None))

    def _place_in(self, last: Expr) -> Expr:
        """The place that the last column of a word says."""
        return Cast(last & ((1 << PLACE) - 1), int64) if self.packed else last

    # ------------------------------------------------------------ words

    @property
    def _words(self) -> list[Local]:
        return [Local(f"v_{b.name}", b.type.dtype) for b in self.columns]

    def _kept(self, k: Expr, at: Expr) -> list[Stmt]:
        """The key and its place as a word, stored there."""
        key = Cast(self.key, uint64)
        written = [(key << PLACE) | Cast(k, uint64)] if self.packed else [key, k]
        return [*(Let(word, x) for word, x in zip(self._words, written, strict=True)),
                *(Store(b, at, word) for b, word in zip(self.columns, self._words, strict=True))]

    def _read(self, at: Expr) -> list[Stmt]:
        return [Let(word, Load(b, at, None)) for b, word in zip(self.columns, self._words, strict=True)]

    @property
    def _half(self) -> Expr:
        """Where the words lie."""
        return (self.turned & 1) * size(self.count)

    def _digit(self, number: int) -> Expr:
        """The place of a digit's count."""
        digit = (self._words[0] >> (self.shift + number * RADIX_BITS)) & ((1 << RADIX_BITS) - 1)
        return Cast(digit, int64) + size(number << RADIX_BITS)

    # ------------------------------------------------------------ a short row

    def _rank(self, count: Expr) -> Stmt:
        """So many words, to the places that how many are smaller says."""
        i, j, rank = Index("i", self.count), Index("j", self.count), Local("rank", int64)
        mine, other = self._words[0], Load(self.columns[0], j, None)
        smaller = other < mine
        if not self.packed:
            smaller = smaller | (Binary("==", other, mine) & (j < i))
        counted = Loop(j, count, (Update(rank, "add", Cast(smaller, int64)),), "vector")
        moved = [Store(b, size(self.count) + rank, word) for b, word in zip(self.columns, self._words, strict=True)]
        return Loop(i, count, (*self._read(i), Accumulator(rank, "add"), counted, *moved))

    # ------------------------------------------------------------ digit after digit

    def _clear(self) -> Stmt:
        j = Index("j", self.counts.elements)
        return Loop(j, size(j.extent), (Store(self.counts, j, size(0)),), "vector")

    def _counted(self) -> list[Stmt]:
        return [Store(self.counts, self._digit(p), Load(self.counts, self._digit(p), None) + 1)
                for p in range(self.passes)]

    def _pass(self, number: int, k: Index) -> list[Stmt]:
        """Words move to the other half, in the order of one digit, unless all have the same."""
        source, target, iterations = (Local(name, int64) for name in ("source", "target", "turns"))
        shared = Binary("==", Load(self.counts, self._digit(number), None), self.found)
        at = Local("at", int64)
        moved: list[Stmt] = [*self._read(source + k), Let(at, Load(self.counts, self._digit(number), None))]
        moved += [Store(b, target + at, word) for b, word in zip(self.columns, self._words, strict=True)]
        moved += [Store(self.counts, self._digit(number), at + 1)]
        return [Let(source, self._half), Let(target, size(self.count) - source), *self._read(source),
                Let(iterations, Select(shared, size(0), size(1))),
                *self._starts(number << RADIX_BITS, 1 << RADIX_BITS, iterations),
                Loop(k, iterations * self.found, tuple(moved)), Update(self.turned, "add", iterations)]

    def _starts(self, first: int, count: int, iterations: Expr) -> list[Stmt]:
        """Counts become the sums of those before."""
        j, total, here = Index("j", count), Local("total", int64), Local("here", int64)
        body = (Let(here, Load(self.counts, j + first, None)), Store(self.counts, j + first, total),
                Update(total, "add", here))
        return [Accumulator(total, "add"), Loop(j, iterations * count, body)]

    # ------------------------------------------------------------ few of many

    def _dealt(self, given: Callable[[Expr], list[Stmt]]) -> list[Stmt]:
        """The smallest key of each group."""
        count, groups = self.count, self.smallest.elements
        iteration, group = Index("turn", count // groups), Index("group", groups)
        nothing = Store(self.smallest, group, identity("min", self.key.dtype))
        smaller = Store(self.smallest, group, Binary("min", Load(self.smallest, group, None), self.key))
        dealt = Loop(group, size(groups), (*given(iteration * groups + group), smaller), "vector")
        return [Loop(group, size(groups), (nothing,), "vector"), Loop(iteration, size(iteration.extent), (dealt,))]

    def _choose(self, given: Callable[[Expr], list[Stmt]]) -> list[Stmt]:
        """The words whose keys are no larger than `first` groups have one, in the order of their places."""
        limit = Local("limit", self.key.dtype)
        return [*self._dealt(given), *self._limit(limit), self._below(given, Binary("<=", self.key, limit))]

    def _limit(self, limit: Local) -> list[Stmt]:
        """The key of this rank among the groups' smallest ones: the largest of which fewer are smaller, bit by bit."""
        group, step, bits = Index("group", self.smallest.elements), Index("step", self.dtype.bits), self.dtype.bits
        tried, less = Local("tried", limit.dtype), Local("less", int64)
        bit = constant(1 << (bits - 1), limit.dtype) >> Cast(step, limit.dtype)
        smaller = Binary("<", Load(self.smallest, group, None), tried)
        return [Accumulator(limit, "add"), Loop(step, size(bits), (
            Let(tried, limit + bit), Accumulator(less, "add"),
            Loop(group, size(group.extent), (Update(less, "add", Cast(smaller, int64)),), "vector"),
            Update(limit, "add", Select(Binary("<", less, size(self.first)), bit, constant(0, limit.dtype)))))]

    def _below(self, given: Callable[[Expr], list[Stmt]], taken: Expr) -> Stmt:
        """Keep the words that are taken; most blocks have none."""
        block, k = Index("block", -(-self.count // SKIP_BLOCK)), Index("k", SKIP_BLOCK)
        some, extent = Local("some", int32), Local("extent", int64)
        at = block * SKIP_BLOCK + k
        return Loop(block, size(block.extent), (
            Let(extent, Binary("min", size(SKIP_BLOCK), size(self.count) - block * SKIP_BLOCK)),
            Accumulator(some, "add"),
            Loop(k, extent, (*given(at), Update(some, "add", Cast(taken, int32))), "vector"),
            Loop(k, Select(some > 0, extent, size(0)), (
                *given(at), *self._kept(at, self.found), Update(self.found, "add", Cast(taken, int64))))))

    # ------------------------------------------------------------ very few

    def _one_by_one(self) -> list[Stmt]:
        """The smallest word of each block; of these the smallest, which is taken away, as often as asked."""
        blocks, here = self.minima[0].elements, Local("here", int64)
        block, i, rest = Index("block", blocks), Index("i", self.first), Index("rest", blocks * SKIP_BLOCK - self.count)
        found, least = self._words[-1], [identity("min", b.type.dtype) for b in self.columns]

        def of_block(block: Expr) -> list[Stmt]:
            return [*self._least(self.columns, block * SKIP_BLOCK, SKIP_BLOCK),
                    *(Store(b, block, word) for b, word in zip(self.minima, self._words, strict=True))]
        taken = [Store(b, here, nothing) for b, nothing in zip(self.columns, least, strict=True)]
        after = [Store(b, rest + self.count, nothing) for b, nothing in zip(self.columns, least, strict=True)]
        return [Loop(rest, size(rest.extent), tuple(after)), Loop(block, size(blocks), tuple(of_block(block))),
                Loop(i, size(self.first), (
                    *self._least(self.minima, size(0), blocks), Store(self.columns[-1], i + blocks * SKIP_BLOCK, found),
                    Let(here, self._place_in(found)), *taken, *of_block(here // SKIP_BLOCK)))]

    def _least(self, columns: Sequence[Buffer], start: Expr, count: Dim) -> list[Stmt]:
        """The smallest of so many words, which has the first place of those that have its key."""
        j, (key, *_) = Index("j", count), self._words
        found: list[Stmt] = []
        for column, name in zip(columns, self._words, strict=True):
            word: Expr = Load(column, start + j, None)
            if name is not key:
                word = Select(Binary("==", Load(columns[0], start + j, None), key), word, identity("min", word.dtype))
            found += [Accumulator(name, "min"), Loop(j, size(count), (Update(name, "min", word),), "vector")]
        return found
