"""A load that depends on places and depth -> how windows slide in it: places, taps, strides, what lies outside.

    sum over k of x[n, c, 2*i + k - 1] * w[o, c, k]    along the axis of i:  t = 2*i + k,  u = t - 1,  0 <= u < size

So what the windows of a block of places cover can be copied once, with zeros where nothing is, and every tap of every
window be found in the copy at a distance that is known.
"""

from __future__ import annotations

from math import gcd, prod

from tenon.loops.affine import Affine, affine, from_affine
from tenon.loops.expressions import Binary, Const, Expr, Index, Load
from tenon.loops.winograd_tiling import Tiling
from tenon.records import dataclass

Axis = tuple[Index, ...]


@dataclass(frozen=True)
class Slide:
    """One axis of memory that windows slide along.

    The place p and tap k of a window meet at t = step*p + reach*k, which is coordinate u = (t + shift) / spread of
    memory if that is whole and low <= u < high, and elsewhere a zero; coordinates are `stride` elements apart.
    """

    place: Index
    tap: Index | None
    step: int
    reach: int
    shift: int
    spread: int
    stride: int
    low: int
    high: int

    @property
    def places(self) -> int:
        """How many windows there are."""
        return _extent(self.place)

    @property
    def taps(self) -> int:
        """How many elements a window has."""
        return _extent(self.tap)

    @property
    def first(self) -> int:
        """The least t."""
        return min(0, self.reach * (self.taps - 1))

    @property
    def is_dense(self) -> bool:
        """Whether all that windows cover is in memory, and nothing between."""
        start = self.first + self.shift
        return self.spread == 1 and self.low <= start and start + self.covered(self.places) <= self.high

    @property
    def tiling(self) -> Tiling:
        """How tiles of windows stand."""
        return Tiling(self.taps, self.step, abs(self.reach))

    @property
    def whole(self) -> range:
        """The places, neighbours all, whose windows reach over neither end."""
        last = max(0, self.reach * (self.taps - 1))
        start = min(max(-(-(self.low - self.shift - self.first) // self.step), 0), self.places)
        stop = min((self.high - 1 - self.shift - last) // self.step + 1, self.places)
        return range(start, max(start, stop))

    def meets(self, tap: int) -> range:
        """The places, neighbours all, whose windows have this tap in memory, if nothing lies between its elements."""
        shift = self.shift + self.reach * tap
        start = min(max(-(-(self.low - shift) // self.step), 0), self.places)
        return range(start, max(start, min((self.high - 1 - shift) // self.step + 1, self.places)))

    @property
    def coordinate(self) -> Affine:
        """Where tap and place meet in memory, if nothing lies between its elements."""
        return Affine({self.place: self.step} if self.tap is None else {self.place: self.step, self.tap: self.reach},
                      self.shift)

    def covered(self, places: int) -> int:
        """How many values of t windows at so many neighbouring places have between them."""
        return self.step * (places - 1) + abs(self.reach) * (self.taps - 1) + 1


@dataclass(frozen=True)
class Windows:
    """Where the factor `load` is read: at `base`, and for every slide its stride times u.

    The base depends on `outside`, places that nothing slides along, and on `channels`, depth that is no tap.
    """

    load: Load
    slides: tuple[Slide, ...]
    outside: Axis
    channels: Axis
    base: Expr

    @property
    def taps(self) -> Axis:
        """The indices of all taps."""
        return tuple(s.tap for s in self.slides if s.tap is not None)

    def along_last(self, number: int) -> Windows:
        """The same with the last slides alone, if the others need no zeros: their places are outside, taps channels."""
        others = self.slides[:-number]
        if not all(slide.is_dense for slide in others):
            return self
        base = affine(self.base)
        for s in others:
            base = base + s.coordinate.scaled(s.stride)
        return Windows(self.load, self.slides[-number:], (*self.outside, *(s.place for s in others)),
                       (*self.channels, *(s.tap for s in others if s.tap is not None)), from_affine(base))


def windows_of(x: Expr, places: Axis, depth: Axis) -> Windows | None:
    """How x, which depends on places and depth, slides along the last of the places; None if it does not.

    From the first place that windows overlap along, all count as such: nothing slides along the others.
    """
    if not isinstance(x, Load) or not places:
        return None
    rest = affine(x.offset)
    if not all(isinstance(n, int) for n in (*rest.terms.values(), rest.constant, *(i.extent for i in places + depth))):
        return None
    found = _masked(x, rest, places, depth)
    if found is None:
        return None
    slides, rest = found
    slides, rest = _plain(slides, rest, places, depth)
    sliding = [place for place in places if place in slides and slides[place].tap is not None]
    if not sliding:
        return None
    first = places.index(sliding[0])
    taken = {s.tap for s in slides.values()}
    if not all(isinstance(atom, Index) for atom in rest.terms) or any(i in rest.terms for i in places[first:]):
        return None
    if any(place in slides for place in places[:first]):
        return None
    return Windows(x, tuple(slides[place] for place in places[first:]), places[:first],
                   tuple(k for k in depth if k not in taken), from_affine(rest))


def count(axis: Axis) -> int:
    """How many places an axis of known extents has."""
    return prod(_extent(index) for index in axis)


def _extent(index: Index | None) -> int:
    return index.extent if index is not None and isinstance(index.extent, int) else 1


# ---------------------------------------------------------------- axes with zeros around or between their elements

@dataclass
class _Limits:
    """What a mask says of one coordinate u = (form) // spread."""

    form: Affine
    spread: int
    low: int | None = None
    high: int | None = None
    whole: bool = False


def _masked(x: Load, rest: Affine, places: Axis, depth: Axis) -> tuple[dict[Index, Slide], Affine] | None:
    """(the slides that the mask speaks of, the offset without them); None where it says something else."""
    limits: dict[tuple[object, ...], _Limits] = {}
    if not all(_note(condition, limits) for condition in _conjuncts(x.mask)):
        return None
    slides: dict[Index, Slide] = {}
    for found in limits.values():
        coordinate = _coordinate(found, rest)
        slide = None if coordinate is None else _slide(found, coordinate, rest, places, depth)
        if slide is None or coordinate is None or slide.place in slides:
            return None
        slides[slide.place] = slide
        rest = rest + coordinate.scaled(-slide.stride)
    return slides, rest


def _conjuncts(mask: Expr | None) -> list[Expr]:
    if mask is None:
        return []
    if isinstance(mask, Binary) and mask.op == "&":
        return _conjuncts(mask.left) + _conjuncts(mask.right)
    return [mask]


def _note(condition: Expr, limits: dict[tuple[object, ...], _Limits]) -> bool:
    """Write down u >= low, u < high or e % spread == 0; False for anything else."""
    match condition:
        case Binary(op="==", left=Binary(op="%", left=inner, right=Const(value=spread)), right=Const(value=0)):
            _limits(inner, int(spread), limits).whole = True
            return True
        case Binary(op=">=" | "<" as op, left=left, right=Const(value=limit)):
            inner, spread, start = _quotient(left)
            found = _limits(inner, spread, limits)
            limit = int(limit) - start
            if op == ">=":
                found.low = limit
            else:
                found.high = limit
            return True
    return False


def _quotient(x: Expr) -> tuple[Expr, int, int]:
    """(e, n, c) where x is e // n + c; or x itself, undivided."""
    form = affine(x)
    (atom, times), *others = form.terms.items() or [(x, 0)]
    if isinstance(atom, Binary) and atom.op == "//" and isinstance(atom.right, Const) and times == 1 and not others \
            and isinstance(form.constant, int):
        return atom.left, int(atom.right.value), form.constant
    return x, 1, 0


def _limits(inner: Expr, spread: int, limits: dict[tuple[object, ...], _Limits]) -> _Limits:
    form = affine(inner)
    key = (frozenset(form.terms.items()), form.constant, spread)
    return limits.setdefault(key, _Limits(form, spread))


def _coordinate(found: _Limits, rest: Affine) -> Affine | None:
    """The coordinate u in the terms that the offset has."""
    if found.spread == 1:
        return found.form
    quotients = [atom for atom in rest.terms if isinstance(atom, Binary) and atom.op == "//"
                 and isinstance(atom.right, Const) and atom.right.value == found.spread
                 and affine(atom.left) == found.form]
    return Affine({quotients[0]: 1}, 0) if quotients else None


def _slide(found: _Limits, coordinate: Affine, rest: Affine, places: Axis, depth: Axis) -> Slide | None:
    """The slide of one coordinate; None if it is no step*place + reach*tap + shift that the offset has too."""
    terms, shift = found.form.terms, found.form.constant
    place = next((i for i in places if i in terms), None)
    tap = next((k for k in depth if k in terms), None)
    step, reach = (terms.get(i, 0) if i is not None else 0 for i in (place, tap))
    if place is None or len(terms) != 1 + (tap is not None) or found.whole != (found.spread > 1):
        return None
    if not (isinstance(step, int) and isinstance(reach, int) and isinstance(shift, int)) or step < 1:
        return None
    atom, each = next(iter(coordinate.terms.items()))
    total = rest.terms.get(atom, 0)
    if not (isinstance(total, int) and isinstance(each, int)) or total % each or total // each < 1:
        return None
    stride = total // each
    if any(rest.terms.get(atom, 0) != stride * c for atom, c in coordinate.terms.items()):
        return None
    if found.spread > 1 and step > 1:
        return None
    return _bounded(Slide(place, tap, step, reach, shift, found.spread, stride, 0, 0), found.low, found.high)


def _bounded(slide: Slide, low: int | None, high: int | None) -> Slide:
    """The slide with limits that no window of it goes beyond."""
    start = -(-(slide.first + slide.shift) // slide.spread)
    stop = (slide.first + slide.covered(slide.places) - 1 + slide.shift) // slide.spread + 1
    return Slide(slide.place, slide.tap, slide.step, slide.reach, slide.shift, slide.spread, slide.stride,
                 start if low is None else max(low, start), stop if high is None else min(high, stop))


# ---------------------------------------------------------------- axes without

def _plain(slides: dict[Index, Slide], rest: Affine, places: Axis, depth: Axis) -> tuple[dict[Index, Slide], Affine]:
    """The slides with those of places and taps that no mask speaks of, and the offset without them."""
    slides, taps = dict(slides), {s.tap for s in slides.values()}

    def add(slide: Slide) -> None:
        nonlocal rest
        slides[slide.place] = slide
        rest = rest + Affine({slide.place: -slide.step * slide.stride}, 0)
        if slide.tap is not None:
            rest = rest + Affine({slide.tap: -slide.reach * slide.stride}, 0)

    for tap in (k for k in depth if k not in taps):
        paired = [_paired(place, tap, rest) for place in places if place not in slides]
        if found := [slide for slide in paired if slide is not None]:
            add(min(found, key=lambda slide: slide.covered(slide.places) / slide.places))
    first = min((places.index(place) for place in slides), default=len(places))
    for place in places[first:]:
        stride = rest.terms.get(place, 0)
        if place not in slides and isinstance(stride, int) and stride > 0:
            add(_bounded(Slide(place, None, 1, 0, 0, 1, stride, 0, 0), None, None))
    return slides, rest


def _paired(place: Index, tap: Index, rest: Affine) -> Slide | None:
    """Place and tap as one axis, if windows share elements then."""
    step, reach = rest.terms.get(place, 0), rest.terms.get(tap, 0)
    if not (isinstance(step, int) and isinstance(reach, int)) or step < 1 or not reach:
        return None
    stride = gcd(step, reach)
    slide = _bounded(Slide(place, tap, step // stride, reach // stride, 0, 1, stride, 0, 0), None, None)
    return slide if slide.covered(slide.places) < slide.places * slide.taps else None
