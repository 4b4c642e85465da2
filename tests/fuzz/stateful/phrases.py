"""Tables of phrases on a `Thing` of the prelude: expressions of each kind, statements, results.

A hole `{int}` takes an expression of that kind, a variable or a constant; `{new int}` a variable that is new behind the
phrase, `{new count}` one that nothing else changes, so that loops end; `{block}` some statements, whose new variables end
with them.  `o` is a `Thing` of the prelude, `x` a tensor, `n` and `s` an int and a float, `flag` a bool.
"""

CONSTANTS = {"int": ("-2", "-1", "0", "1", "2", "4"), "float": ("0.5", "-1.25", "2.0", "1e-3", "0.0"), "tensor": ("x", "o.w"),
             "bool": ("flag", "n > 1", "o.flag"), "list": ("[x, x * 2]",), "numbers": ("[n, 2]",)}

EXPRESSIONS = {
    "int": """
        {int} + {int} | {int} * {int} | {int} - {int} | {int} // 3 | {int} % -2 | abs({int}) | max({int}, {int}) | int({float})
        o.count | len(o.items) | o.steps.get({key}, {int}) | o.config.k | o.net.calls | len({list}) | sum({numbers})
        {int} if {bool} else {int} | x.shape[0] | x.ndim | COUNT[0] | len(o.bag) | sum(o.queue) | o.tally[n]
        len(set(range(abs(n))) & {1, 2}) | sum(1 for t in [1, n, 3] if t > 1) | divmod(n, 2)[0] | [5, 6, 7][n % 3]
        {{0: 5, 1: 6}}.get(n, 7) | round(s * 10) | len(o.name) | (n and 2) or 1 | ~n | -n""",
    "float": """
        {float} + {float} | {float} * {float} | {float} - {float} | {int} * 0.5 | min({float}, {float}) | {float} / 4.0
        o.rate | o.prop | o.config.gain | float({int}) | math.sin({float}) | math.floor({float}) | round({float}, 1)
        {tensor}.sum().item() | float({tensor}.mean()) | {float} if {bool} else {float}""",
    "bool": """
        {int} < {int} | {int} == {int} | {float} < {float} | 0 < {int} < 5 | not {bool} | {bool} and {bool} | {bool} or {bool}
        {tensor}.sum() > {float} | ({tensor} > 0).any() | {key} in o.steps | o.memory is None | len(o.items) > 2
        isinstance({tensor}, tn.Tensor) | isinstance({int}, int) | bool({tensor}.sum() > 0) is True | "a" in o.bag""",
    "tensor": """
        {tensor} + {tensor}.mean() | {tensor} * {tensor}.sum() | {tensor} - {float} | {tensor} * {int} | {tensor} / 2
        tn.tanh({tensor}) | tn.relu({tensor}) | tn.abs({tensor}) | tn.where({tensor} > 0, {float}, {tensor}.sum())
        o.w | o.touch({tensor}) | helper({tensor}) | helper({tensor}, k={int}) | o.memory if o.memory is not None else {tensor}
        {tensor} if {bool} else {tensor} | sum(t.sum() for t in {list}) + {tensor} | o.net(x) | o.net(x, keep={bool})
        (lambda a, b={float}: a * b)({tensor}) | max({tensor}.sum(), {tensor}.mean()) | deep({tensor}, n) | final({tensor}, n)
        many(*[{tensor}, x], scale={float}, **{{"extra": {int}}}) | o.bag({tensor}, 1, scale={int}) | x[0] | x[..., 1:] | x[n:]
        max([x, {tensor}], key=lambda t: t.sum()) | [x, {tensor}][int({bool})] | {{True: x, False: {tensor}}}[flag]
        functools.reduce(lambda a, b: a + b.sum(), [x, o.w], {float}) | list(map(tn.sin, [x, {tensor}]))[n % 2]
        tn.grad(lambda z: (tn.tanh(z * {float}) * z).sum())({tensor}) | next(filter(lambda t: t.ndim > 0, [{tensor}, x]))""",
    "list": "[{tensor}] | [x] * 2 | [{tensor} * k for k in range(3) if k % 2] | [t * 2 for t in {list}] | {list}[::-1] | [*{list}, x]",
    "numbers": "[{int}, {int}] | sorted({numbers}) | [a * 2 for a in {numbers} if a > 0] | list(range(abs(n)))[:5] | [*{numbers}, n]",
    "key": "'a' | 'b' | 'c'",
    "result": "{tensor} | ({tensor}, {int}) | {{'t': {tensor}, 'n': {float}}} | Pair({tensor}, o.count) | [{tensor}, {bool}] | None | o.memory"}

STATEMENTS = """
{new int} = {int}
---
{new float} = {float}
---
{new tensor} = {tensor}
---
{new list} = {list}
---
{new numbers} = {numbers}
---
{old int} += {int}
---
{old float} *= {float}
---
{old tensor} = {tensor}
---
o.count += {int}
---
o.count = {int}
---
o.rate = {float}
---
o.memory = {tensor}
---
o.memory = None
---
o.flag = {bool}
---
o.prop = {float}
---
o.items.append({int})
if len(o.items) > 3: o.items.pop(0)
---
if {bool}: o.items.append({tensor})
{new int} = len(o.items)
---
o.items = o.items[-2:]
---
o.steps[{key}] = {int}
---
o.steps.pop({key}, None)
---
o.steps = {{k: v + 1 for k, v in o.steps.items()}}
---
o.bag[n] = {float}
---
o.config.k += 1
---
o.config = dataclasses.replace(o.config, k={int})
---
o.pair = Pair({tensor}, {int})
---
o.queue.append({int})
o.tally[n] += 1
---
COUNT[0] += 1
bump()
---
o.net.train({bool})
---
o.net.hidden = None
---
o.name = f\"\"\"step{{{int}}}\"\"\"
---
o.name = "-".join(map(str, [n, {int}]))
---
print("n", {int}, f\"\"\"{{{float}:.2f}}\"\"\", o.count)
---
print("t", {tensor}.sum())
---
type(o).scale = {float}
---
{new tensor} = x * 1.0
{last tensor}[0] = {float}
---
{new tensor} = {tensor}
{last tensor} += 1.0
---
{new tensor} = x.reshape(-1) * 1.0
{last tensor}[{last tensor} > 0] = {float}
---
o.total += {tensor}.sum().detach()
---
o.opt.zero_grad()
(o.p * {tensor}.detach().mean() + o.p ** 2).sum().backward()
o.opt.step()
---
for group in o.opt.param_groups: group["lr"] *= 0.9
---
def inner(a, b={float}):
    if {bool}: return a * b
    return a + o.rate
{new tensor} = inner({tensor})
---
{new tensor} = x.sum()
for each in walk({tensor}, n): {last tensor} = {last tensor} + each.sum()
---
if {bool}:
    {block}
---
if {bool}:
    {block}
else:
    {block}
---
if {bool}: return {result}
---
for i in range({int}):
    if i > 3: break
    {block}
---
for k, i in enumerate([{int}, {int}]):
    {block}
---
for each in {list}:
    {block}
---
for each in x:
    {block}
---
for key, i in sorted(o.steps.items()):
    {block}
---
{new count} = 0
while {last count} < 3 and ({bool}):
    {last count} += 1
    {block}
---
try:
    {block}
    if {bool}: raise ValueError(n)
except ValueError:
    {block}
else:
    {block}
---
{new tensor} = x
try:
    {last tensor} = risky({tensor}, {int})
except Odd as problem:
    o.name = str(problem)
finally:
    o.count += 1
---
with Scope(o):
    {block}
---
with faster(o):
    {block}
---
with tn.no_grad():
    {block}
---
match ({int}, flag):
    case (0, _):
        {block}
    case (k, True) if k > 1:
        {block}
    case _:
        {block}
---
match {int}:
    case 0 | 1:
        {block}
    case int() as k:
        {block}
"""
