"""Object features: attributes, properties, inheritance, protocols, dataclasses, enums."""

import dataclasses
import enum
import functools

from capture.corpus import T, attempt, program, session


class Activation(enum.Enum):
    """Which function a layer ends with."""

    TANH = "tanh"
    RELU = "relu"

    def __call__(self, x):
        return T.tanh(x) if self is Activation.TANH else T.relu(x)


@dataclasses.dataclass
class State:
    """A position and how often it was moved."""

    position: object
    moves: int = 0


@dataclasses.dataclass(frozen=True)
class Config:
    """What a layer is made with."""

    scale: float = 2.0
    activation: Activation = Activation.TANH


class Layer:
    """A layer with a weight; `calls` counts them for all layers."""

    calls = 0

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        Layer.calls += 1
        return self.forward(x)

    def forward(self, x):
        return x * self.weight


class Gate(Layer):
    """Lets through what is positive in sum."""

    def forward(self, x):
        if T.sum(x) > 0:
            return super().forward(x)
        return x * 0.0


class Vector:
    """Overloaded operators."""

    def __init__(self, data):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + other.data)

    def __mul__(self, scale):
        return Vector(self.data * scale)

    def __getitem__(self, k):
        return self.data[k]

    def __len__(self):
        return self.data.shape[0]

    def __bool__(self):
        return bool(T.sum(self.data) > 0)

    @property
    def norm(self):
        return T.sqrt(T.sum(self.data * self.data))


@program
def dataclass_updated_in_a_loop(x):
    state = State(x)
    for _ in range(4):
        if T.sum(T.abs(state.position)) > 1.0:
            state.position = state.position * 0.5
            state.moves += 1
    return state.position, state.moves


@program
def dataclass_replaced_in_a_branch(x):
    state = State(x, moves=1)
    if T.sum(x) > 0:
        state = dataclasses.replace(state, position=x * 2.0)
    return state


@program
def frozen_dataclass(x, config=Config()):
    return config.activation(x * config.scale)


@program
def enum_member_chooses(x, activation=Activation.RELU):
    return activation(x) if T.sum(x) > 0 else Activation.TANH(x)


@program
def overloaded_operators(x):
    v = Vector(x) + Vector(x * 2.0) * 3.0
    return v.data if v.norm > 10.0 else v[0]


@program
def own_truth_value(x):
    v = Vector(x)
    return x * 2.0 if v else x * float(len(v))


@program
def inherited_method_with_super(x):
    return Gate(3.0)(x)


@program
def attribute_set_in_a_branch(x):
    layer = Layer(2.0)
    if T.sum(x) > 0:
        layer.weight = 5.0
    return layer.forward(x)


@program
def attribute_created_in_one_branch(x):
    layer = Layer(2.0)
    if T.sum(x) > 0:
        layer.bias = x
    return layer.bias if hasattr(layer, "bias") else layer.forward(x)


@program
def getattr_with_a_name(x, name="tanh"):
    return getattr(T, name)(x) if T.sum(x) > 0 else getattr(T, "exp")(x * 0.1)


@program
def isinstance_of_a_union(x):
    items = [x, 2.0, "word", None]
    total = x
    for item in items:
        if isinstance(item, (int, float)):
            total = total * item
        elif item is None:
            total = total + 1.0
    return total if T.sum(x) > 0 else x


@program
def object_made_on_every_call(x):
    class Accumulator:
        def __init__(self):
            self.total = 0.0

        def add(self, value):
            self.total = self.total + value
            return self

    return Accumulator().add(T.sum(x)).add(x).total


@program
def callable_object_in_a_list(x):
    layers = [Layer(2.0), Gate(0.5), Layer(-1.0)]
    for layer in layers:
        x = layer(x)
    return x


@program
def static_and_class_methods(x):
    class Maths:
        factor = 3.0

        @staticmethod
        def double(v):
            return v * 2.0

        @classmethod
        def scaled(cls, v):
            return v * cls.factor

    return Maths.double(x) if T.sum(x) > 0 else Maths.scaled(x)


@session
def jitted_method(jit):
    class Model:
        def __init__(self):
            self.weight = T.tensor([1.0, 2.0])
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            y = x * self.weight
            if T.sum(y) > 0:
                return y
            return -y

    model = Model()
    f = jit(model.forward)
    for values in ([1.0, 2.0], [-3.0, 1.0]):
        yield f(T.tensor(values)), model.steps
    model.weight = model.weight * 10.0
    yield f(T.tensor([1.0, 2.0])), model.steps


@session
def property_and_setter(jit):
    class Clock:
        def __init__(self):
            self._time = 0.0

        @property
        def time(self):
            return self._time

        @time.setter
        def time(self, value):
            self._time = value * 1.0

    clock = Clock()

    @jit
    def f(x):
        clock.time = clock.time + 0.5
        return x * clock.time

    for _ in range(3):
        yield f(T.tensor([1.0, 2.0])), clock.time


@session
def tensor_attribute_is_rebound(jit):
    class Memory:
        pass

    memory = Memory()
    memory.value = T.tensor([0.0, 0.0])

    @jit
    def f(x):
        if T.sum(x) > 0:
            memory.value = memory.value + x
        return memory.value * 2.0

    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]):
        yield f(T.tensor(values)), memory.value


@session
def method_replaced_on_the_instance(jit):
    layer = Layer(2.0)

    @jit
    def f(x):
        return layer.forward(x)

    x = T.tensor([1.0, 2.0])
    yield f(x)
    layer.forward = lambda v: v - 1.0
    yield f(x)


@session
def class_attribute_changes(jit):
    class Base:
        scale = 2.0

    class Derived(Base):
        pass

    one = Derived()

    @jit
    def f(x):
        return x * one.scale if T.sum(x) > 0 else x

    x = T.tensor([1.0, 2.0])
    yield f(x)
    Base.scale = 3.0
    yield f(x)
    Derived.scale = 4.0
    yield f(x)
    one.scale = 5.0
    yield f(x)


@session
def attributes_by_getattr_hook(jit):
    class Lazy:
        def __init__(self):
            self.table = {"scale": 2.0}

        def __getattr__(self, name):
            try:
                return self.table[name]
            except KeyError:
                raise AttributeError(name) from None

    lazy = Lazy()

    @jit
    def f(x):
        return x * lazy.scale

    x = T.tensor([1.0, 2.0])
    yield f(x)
    lazy.table["scale"] = 7.0
    yield f(x)
    del lazy.table["scale"]
    yield attempt(f, x)


@session
def slots(jit):
    class Cell:
        __slots__ = ("value", "count")

        def __init__(self):
            self.value, self.count = 2.0, 0

    cell = Cell()

    @jit
    def f(x):
        cell.count += 1
        return x * cell.value

    x = T.tensor([1.0, 2.0])
    yield f(x), cell.count
    cell.value = 3.0
    yield f(x), cell.count


@session
def cached_property(jit):
    class Data:
        def __init__(self):
            self.items = [1.0, 2.0, 3.0]

        @functools.cached_property
        def total(self):
            return sum(self.items)

    data = Data()

    @jit
    def f(x):
        return x * data.total

    x = T.tensor([1.0, 2.0])
    yield f(x)
    data.items.append(10.0)
    yield f(x)
    del data.total
    yield f(x)


@session
def descriptor(jit):
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner):
            return getattr(instance, self.name)

        def __set__(self, instance, value):
            if value <= 0:
                raise ValueError("must be positive")
            setattr(instance, self.name, value)

    class Model:
        rate = Positive()

        def __init__(self, rate):
            self.rate = rate

    model = Model(2.0)

    @jit
    def f(x):
        return x * model.rate if T.sum(x) > 0 else x

    x = T.tensor([1.0, 2.0])
    yield f(x)
    model.rate = 3.0
    yield f(x)


@session
def linked_list(jit):
    class Node:
        def __init__(self, value, after=None):
            self.value, self.after = value, after

    head = Node(1.0, Node(2.0, Node(3.0)))

    @jit
    def f(x):
        node = head
        while node is not None:
            x = x * node.value if T.sum(x) > 0 else x + node.value
            node = node.after
        return x

    x = T.tensor([1.0, 2.0])
    yield f(x), f(-x)
    head.after.after = Node(10.0)
    yield f(x), f(-x)
