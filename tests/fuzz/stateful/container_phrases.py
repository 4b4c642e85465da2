"""Tables of phrases on the containers and small classes of a `Thing`; see `phrases.py` for how they are written."""

EXPRESSIONS = {
    "int": """
        o.words.get("w{{}}".format({int}), {int}) | len(o.words) | len(o.groups) | len(o.groups[{int} % 3]) | o.chain[{key}] | len(o.chain.maps)
        heapq.nsmallest(1, o.heap)[0] | sum(o.heap) | bisect.bisect(o.ranks, {int}) | o.tally.most_common(1)[0][1] if o.tally else 0
        sum(len(list(g)) for _, g in itertools.groupby({numbers}, lambda k: k > 1)) | [0, *itertools.accumulate({numbers})][-1]
        sum(b - a for a, b in itertools.pairwise({numbers})) | len(o.members) | len(o.members.union([1, 2, {int}])) | min(o.members, default={int})
        len(frozenset({numbers}) & o.members) | o.slot.n | o.frozen.a | o.area | next(o.ticks) | o.tracked.value | len(o.tracked.seen) | o.ghost
        describe({int}) | describe({float}) | functools.partial(operator.sub, {int})({int}) | o.tick({int}) | type(o).kinds[-1] | o.order[{key}]
        next(iter(o.order.values())) | list(o.table)[0] if o.table else {int} | sum(o.table) | {int} & 6 | {int} ^ 3 | {int} << 1 | {int} >> 1
        int("%+d" % ({int},)) | len(str({int})) | math.trunc({float}) | math.ceil({float}) | round({float}) | {bool} + {int} | sum([{bool}, {bool}])
        int({float} // 0.75) | int(divmod({float}, 0.75)[0]) | {int} % 3 - {int} % -3 | ({int} * 1000003) % 997 | copy.copy(o.config).k
        copy.deepcopy(o.slot).n | int({tensor}.sum()) | int({tensor}.argmax()) | int(({tensor} > 0).sum()) | max([{int}, n], key=abs)
        getattr(o, "extra", {int}) | o.shelf["n"] | len(o.shelf) | o.log[-1][0] if o.log else {int} | int("a" in o.steps) | ord(o.name[0])""",
    "float": """
        o.limited | o.best | {float} // 0.75 | {float} % 0.75 | divmod({float}, 0.75)[1] | -{float} | abs({float}) | float("{{:.2f}}".format({float})) | float(f"{s:.1f}") | float("%.3g" % ({float},))
        sum(o.scores.values()) | max(o.scores.values(), default={float}) | math.copysign(1.0, {float}) | math.fmod({float}, 0.3) | round({float}, 2)
        math.hypot({float}, {float}) | o.frozen.b | statistics.mean([{float}, {float}]) | float({bool}) | int({float}) + {float} | o.slot.t.sum().item()""",
    "bool": """
        {int} in o.members | {int} in o.words.values() | "w{{}}".format({int}) in o.words | {float} < {float} <= 1.0 | {int} != {int} != 0 | hasattr(o, "extra")
        o.frozen == Frozen(1, {float}) | 0 < {tensor}.sum() < 2 | {tensor}.sum() > {tensor}.mean() | o.table.keys() == {0, 1} | bool(o.table)
        any(t.sum() > {float} for t in {list}) | all(t.sum() > {float} for t in {list}) | {int} in (0, 1, {int}) | o.order.keys() <= {"a"}
        not ({tensor}.max() < {float} or {bool}) | o.slot.t.sum() > {float} | {float} == 0.5 | isinstance({int}, bool) | bool({bool}) is bool({bool})""",
    "tensor": """
        o.slot.t | o.table.get({int}, x) | o.act({tensor}) | o.past[-1] | sum(o.past) | o.table.setdefault({int} % 2, {tensor}) | o.grown(x)
        functools.reduce(operator.add, o.past) | copy.copy({tensor}) | copy.deepcopy({tensor}) | {tensor} ** 2 | {tensor} // 0.5 | {tensor} % 0.7
        tn.stack([t.sum() for t in {list}]) if {list} else x | min({list}, key=lambda t: t.sum(), default=x) | o.frozen.t + {tensor}.sum()
        x.clip(-1, 1) * {int} | {tensor}.sum() if {int} > {int} else {tensor} | [t for t in [x, {tensor}] if t.sum() > {float}][-1:] == [] or x
        tn.nn.functional.leaky_relu({tensor}, {float}) | x.sort(-1)[0] | x.cumsum(-1) | o.w[n % 3] * x | x + (o.w if x.ndim == 1 else 1) | -{tensor}""",
    "numbers": """
        [*o.heap, {int}] | list(o.members) | list(itertools.islice(itertools.count({int}), 2)) | [int(c) for c in f"{abs(n)}"]
        sorted(o.words.values())[:3] | [a for a, b in zip([1, 2, 3], {numbers})] | list(itertools.chain({numbers}, [n]))[:4] | list(o.order.values())""",
    "list": "list(o.table.values()) | list(o.past) | sorted({list}, key=lambda t: t.sum()) | [t for t in {list} if t.sum() > 0] | [*o.past, x]"}

STATEMENTS = """
o.words[f\"\"\"w{{{int}}}\"\"\"] = {int}
if len(o.words) > 4: o.words.pop(next(iter(o.words)))
---
o.scores[f\"\"\"{{{float}:.1f}}\"\"\"] = {float}
if len(o.scores) > 3: del o.scores[min(o.scores)]
---
o.groups[{int} % 3].append({tensor})
o.groups[{int} % 3][:-1] = []
---
o.chain[{key}] = {int}
---
o.chain = o.chain.new_child({{{key}: {int}}}) if len(o.chain.maps) < 3 else o.chain.parents
---
heapq.heappush(o.heap, {int})
{new int} = heapq.heappop(o.heap) if len(o.heap) > 3 else 0
---
bisect.insort(o.ranks, {int})
del o.ranks[3:]
---
o.order.move_to_end({key}, last={bool})
---
o.order[{key}] = {int}
---
o.members.add({int})
---
o.members.discard({int})
---
o.members ^= {{{int}}}
if len(o.members) > 4: o.members.clear()
---
o.slot.n, o.slot.t = {int}, {tensor}
---
o.slot = copy.copy(o.slot)
o.slot.n += {int}
---
o.frozen = dataclasses.replace(o.frozen, b={float})
---
o.frozen = Frozen({int}, t={tensor})
---
setattr(o, "extra", {int})
---
if hasattr(o, "extra"): del o.extra
---
try: del o.extra
except AttributeError: o.count += {int}
---
o.tracked.value = {int}
---
o.tracked.other = {float}
---
o.limited = {float}
---
o.best = min(o.best, {float})
---
type(o).kinds = (*type(o).kinds[-2:], {int})
---
o.kinds = o.kinds[-1:] + ({int},)
---
o.table[{int} % 4] = {tensor}
---
if o.table: o.table.pop(next(iter(o.table)))
---
o.past.append({tensor}.sum())
---
o.past.rotate({int})
---
o.log.append(({int}, {float}))
o.log = o.log[-2:]
---
o.act = lambda t, k={float}: t * k + o.count
---
o.__dict__.pop("area", None)
---
o.shelf["n"] = {int}
---
o.grown = functools.partial(helper, k={int})
---
{new numbers} = {numbers}
{last numbers}.append({int})
{last numbers}.sort(key=lambda k: -k)
---
first, *rest = [{int}, *{numbers}]
{new int} = first + len(rest)
---
(a, b), *_ = [({int}, {float}), {tensor}]
{new int} = a
---
{new list} = {list}
{last list} += [{tensor}]
{last list}.reverse()
---
assert {bool} or {bool}, "odd"
---
{new int} = {int}
def raised(t):
    nonlocal {last int}
    {last int} += 1
    return t * {last int}
{new list} = [raised(t) for t in {list}]
---
class Local:
    k = {int}
    def run(self, t): return t * self.k
Local.k += 1
{new tensor} = Local().run({tensor})
---
{new int} = {int}
try: {last int} = {int} // {int}
except ZeroDivisionError as problem: o.name = str(problem)
---
try: {new int} = o.steps[{key}] + {int}
except KeyError as problem: o.count += len(problem.args)
---
if {bool}: raise Odd({int})
---
print(sorted(o.members), list(o.words), f\"\"\"{{{int}:>4d}}|{{{float}:.2e}}|{{{bool}!r}}\"\"\")
---
print("%d and %.1f" % ({int}, {float}), [{int}], ({float},))
---
if ({new int} := {int}) > 1 and {bool}:
    {block}
elif {bool}:
    {block}
---
for i, (a, b) in enumerate(zip({numbers}, {list})):
    {block}
---
for k, t in list(o.table.items()):
    {block}
---
for i in range(int({tensor}.abs().sum()) % 4):
    {block}
else:
    {block}
---
for i in range(3):
    try:
        {block}
        if {bool}: continue
        if {bool}: break
    finally:
        o.count += 1
else:
    o.count -= {int}
---
for key, group in itertools.groupby(sorted({numbers})):
    {block}
---
{new count} = 0
while {last count} < 4 and {tensor}.abs().sum() > {float}:
    {last count} += 1
    if {bool}: continue
    {block}
else:
    {block}
---
{new count} = 0
while True:
    {last count} += 1
    if {last count} > 3 or {bool}: break
    {block}
---
{new numbers} = {numbers}
while {last numbers} and {bool}:
    o.log.append(({last numbers}.pop(), 0.5))
    {block}
---
with contextlib.suppress(ZeroDivisionError, Odd):
    {block}
    {new int} = {int} % {int}
    if {bool}: raise Odd(n)
---
with contextlib.ExitStack() as stack:
    stack.enter_context(faster(o))
    stack.callback(bump, {int})
    {block}
---
try:
    try:
        {block}
        if {bool}: raise Odd({int}, {float})
    except Odd as problem:
        o.log.append(problem.args)
        {block}
        if {bool}: raise
    finally:
        o.rate *= 0.5
except ValueError as problem:
    o.count += len(problem.args)
---
match {numbers}:
    case []:
        {block}
    case [a] | [a, _]:
        {block}
    case [a, *rest] if a > {int}:
        {block}
---
match o.frozen:
    case Frozen(a=1, b=b):
        {block}
    case Frozen(b=float() as b) if b > {float}:
        {block}
---
match o.order:
    case {{"a": 1, **others}}:
        {block}
    case {{"a": int() as k}} if k > n:
        {block}
"""
