"""What programs are made of, as a table: which inputs a phrase takes, and how it is written.

    kinds axes [most] | expression

`kinds` are those of the element type of {x} (f floating, i integer, u unsigned, b bool; a any), `axes` how many {x} may
have, `most` how many elements.  The other fields are chosen when the phrase is used (fuzz.fields).  A phrase with {t} is
statements that make {t}; a return of several tensors gives several values.  Operators that are elementwise need no line,
nor do those whose examples say enough: fuzz.generate reads their definitions.
"""

VIEWS = """
a 0-4 | {x}.reshape({shape})
a 1-4 | {x}.reshape(-1)
a 1-4 | tn.flatten({x})
a 2-4 | tn.permute({x}, {perm})
a 2-4 | tn.moveaxis({x}, {axis}, {axis})
a 2-4 | tn.swapaxes({x}, {axis}, {axis})
a 2-4 | tn.matrix_transpose({x})
a 0-3 | tn.expand_dims({x}, {new_axis})
a 1-4 | tn.squeeze({x})
a 0-3 | tn.broadcast_to({x}, {wider})
a 0-3 | tn.expand({x}, {wider})
a 1-4 | {x}[{key}]
a 1-4 | {x}[{key}]
a 2-3 | {x}.T
a 1-4 | tn.flip({x}, {axis})
a 1-4 | tn.flip({x})
a 1-4 | tn.roll({x}, {int:-3,4}, {axis})
a 1-3 | tn.roll({x}, {int:-3,4})
a 2-4 | tn.rot90({x}, {int:0,4})
a 1-4 | tn.narrow({x}, {axis}, 0, {int:1,3})
a 1-4 | tn.select({x}, {axis}, {int:-1,2})
a 1-4 | tn.unfold({x}[None, None], 2) if {x}.ndim == 2 else {x}
a 2-3 | tn.diagonal({x}, {int:-1,2})
a 2-4 | tn.tril({x}, {int:-1,2})
a 2-4 | tn.triu({x}, {int:-1,2})
a 1-1 60 | tn.diag({x}, {int:-1,2})
a 1-2 60 | tn.diagflat({x})
a 1-2 60 | tn.diag_embed({x}, {int:-1,2})
f 2-2 | tn.trace({x}, {int:-1,2})
a 1-3 | tn.sliding_window({x}, {int:1,4}, {int:1,3}, {axis})
a 1-4 | tn.split({x}, {int:1,4}, {axis})
a 1-4 | tn.chunk({x}, {int:1,4}, {axis})
a 1-4 | tn.tensor_split({x}, {int:1,4}, {axis})
a 2-3 | tn.unstack({x}, {axis})[0]
f 1-4 | tn.pad({x}, {pads})
a 1-4 | tn.atleast_3d({x})
a 1-3 | tn.unflatten({x}, 0, (1, -1))
"""

SHUFFLES = """
a 1-4 800 | tn.tile({x}, {reps})
a 1-4 800 | tn.repeat({x}, {int:1,4}, {axis})
a 1-3 800 | tn.repeat({x}, {int:1,4})
a 1-4 800 | tn.repeat_interleave({x}, {int:1,4}, {axis})
f 1-3 100 | tn.kron({x}, {small})
f 2-3 100 | tn.kron({x}, tn.ones(({int:1,4}, {int:1,4})))
f 4-4 | tn.pixel_shuffle(tn.concat([{x}] * 4, axis=1), 2)
f 4-4 | tn.pixel_unshuffle(tn.repeat(tn.repeat({x}, 2, 2), 2, 3), 2)
f 4-4 | tn.channel_shuffle(tn.concat([{x}, {x}], axis=1), 2)
f 4-4 800 | tn.interpolate({x}, scale_factor={int:1,4}, mode="nearest")
f 3-4 800 | tn.interpolate({x}, scale_factor=2, mode="nearest-exact")
f 4-4 800 | tn.interpolate({x}, scale_factor=2, mode="bilinear", align_corners={bool})
f 4-4 400 | tn.interpolate({x}, size=({int:1,9}, {int:1,9}), mode="{word:bilinear,bicubic,area,nearest}")
f 3-3 800 | tn.interpolate({x}, scale_factor={int:1,4})
a 1-4 800 | tn.concat([{x}, {same}], axis={axis})
a 1-4 800 | tn.concat([{x}, {same} * 2, {x}], axis={axis})
a 0-3 800 | tn.stack([{x}, {same}], axis={new_axis})
a 1-3 800 | tn.hstack([{x}, {same}])
a 1-3 800 | tn.vstack([{x}, {same}])
a 1-3 800 | tn.dstack([{x}, {same}])
f 2-2 100 | tn.block_diag({x}, {same})
f 1-1 100 | tn.meshgrid({x}, {x} * 2)
f 1-1 30 | tn.cartesian_prod({x}, {x} + 1)
f 1-1 12 | tn.combinations({x})
"""

WINDOWS = """
f 4-4 | tn.max_pool2d({x}, {window2})
f 4-4 | tn.max_pool2d({x}, {window2})
f 4-4 | tn.max_pool2d({x}, 2, 1, 1, 1, False)
f 4-4 | tn.max_pool2d({x}, 3, 2, 1, return_indices=True)
f 4-4 | tn.avg_pool2d({x}, {window2})
f 4-4 | tn.avg_pool2d({x}, {window2}, count_include_pad=False)
f 3-3 | tn.max_pool1d({x}, {window1})
f 3-3 | tn.avg_pool1d({x}, {window1})
f 4-4 | tn.lp_pool({x}, 2.0, {int:1,4})
f 4-4 | tn.adaptive_avg_pool2d({x}, ({int:1,5}, {int:1,5}))
f 4-4 | tn.adaptive_max_pool2d({x}, ({int:1,5}, {int:1,5}))
f 3-3 | tn.adaptive_avg_pool1d({x}, {int:1,5})
f 4-4 | tn.unfold({x}, {int:1,4}, padding={int:0,2}, stride={int:1,4})
f 4-4 | tn.unfold({x}, ({int:1,4}, {int:1,4}), {int:1,3}, {int:0,2}, ({int:1,3}, {int:1,3}))
f 4-4 400 | tn.fold(tn.unfold({x}, 2, stride=2), {x}.shape[2:], 2, stride=2)
f 1-4 | tn.pad({x}, {pads})[..., ::2]
f 2-4 | tn.pad({x}, {pads})[..., ::2, ::2]
f 3-4 | tn.conv{nd}d({x}, {filter}, stride={int:1,3}, padding={int:0,3})
f 3-4 | tn.conv{nd}d({x}, {filter}, padding="same")
f 3-4 | tn.conv{nd}d({x}, {filter}, dilation=2, padding=2)
f 3-4 | tn.conv{nd}d({x}, {depthwise}, groups={x}.shape[1], padding=1)
f 3-4 | tn.conv_transpose{nd}d({x}, {filter_t}, stride={int:1,4}, padding={int:0,2})
f 4-4 400 | tn.local_response_norm({x}, {int:1,4})
"""

ROWS = """
f 1-4 | tn.softmax({x}, axis={axis})
f 1-4 | tn.softmax({x}, axis={axis})
f 1-4 | tn.log_softmax({x}, axis={axis})
f 1-4 | tn.softmin({x}, axis={axis})
f 1-4 | tn.softmax({x}.reshape(-1), axis=0)
f 3-4 | tn.softmax({x}.reshape({x}.shape[0], -1), axis=-1).reshape({x}.shape)
f 3-4 | tn.instance_norm({x})
f 2-4 | tn.group_norm({x}, num_groups=1, eps=1e-5)
f 2-4 | tn.group_norm({x}, num_groups={x}.shape[1], eps=1e-5)
f 1-4 | tn.layer_norm({x}, {x}.shape[-{count}:])
f 1-4 | tn.rms_norm({x}, {x}.shape[-{count}:])
f 1-4 | tn.layer_norm({x}, {x}.shape[-1:], {last_weight}, {last_weight})
f 2-4 | tn.normalize({x}, axis={axis})
f 1-4 | {x} - {x}.mean({axes}, keepdims=True)
f 1-4 | ({x} - {x}.mean({axis}, keepdims=True)) / ({x}.std({axis}, keepdims=True) + 0.1)
f 1-4 | {x} / (tn.abs({x}).sum({axes}, keepdims=True) + 1)
f 1-4 | tn.exp({x} - {x}.max({axis}, keepdims=True))
a 1-4 | {x} >= {x}.max()
a 1-4 | {x} >= {x}.max({axis}, keepdims=True)
a 1-4 | {x} == {x}.min({axis}, keepdims=True)
a 1-4 | {x} <= {x}.min()
f 1-4 | {x} > {x}.mean()
f 1-4 | tn.where({x} >= {x}.max({axis}, keepdims=True), {x}, 0.0)
f 2-4 | tn.var_mean({x}, {axes})
f 1-3 | tn.renorm({x}, 2.0, 0, 1.0)
"""

REDUCTIONS = """
f 0-4 | tn.sum({x}, {axes}, {bool})
f 1-4 | tn.{word:sum,mean,max,min,prod,std,var,logsumexp,nansum,nanmean}({x}, {axes}, {bool})
f 1-4 | tn.{word:sum,mean,max,min,logsumexp}({x}, {axes}, True) + {x}
f 1-4 | tn.{word:sum,mean,max,min,amax,amin}({x})
a 1-4 | tn.{word:argmax,argmin}({x}, {axis})
a 1-4 | tn.{word:argmax,argmin}({x}, {axis}, True)
a 1-4 | tn.{word:argmax,argmin}({x})
iub 1-4 | tn.{word:sum,max,min,any,all,prod,count_nonzero}({x}, {axes})
f 1-4 | tn.{word:any,all,count_nonzero}({x} > 0.3, {axes})
f 1-4 | tn.vector_norm({x}, {word:1.0,2.0,3.0}, {axis})
f 1-4 | tn.norm({x})
f 2-2 | tn.matrix_norm({x})
f 1-4 | tn.aminmax({x}, {axis})
f 1-4 | tn.{word:cumsum,cumprod,logcumsumexp}(tn.tanh({x}), {axis})
fi 1-4 | tn.flip(tn.{word:cumsum,cumprod}(tn.flip({x}, {axis}), {axis}), {axis})
f 1-4 | tn.{word:cummax,cummin}({x}, {axis})
f 1-4 | tn.cumulative_sum({x}, axis={axis}, include_initial={bool})
fi 1-4 | tn.diff({x}, axis={axis})
f 1-3 | tn.trapezoid({x}, axis={axis})
f 1-3 | tn.cumulative_trapezoid({x}, axis={axis})
f 1-3 | tn.gradient({x}, axis={axis})
f 2-2 400 | tn.cov({x})
f 2-2 400 | tn.corrcoef({x})
f 1-3 | tn.quantile({x}, {word:0.1,0.5,0.77}, {axis})
f 1-3 | tn.median({x}, {axis})
f 1-3 | tn.nanmedian({x}, {axis})
"""

SELECTING = """
a 1-3 | tn.take({x}, {index}, axis={axis0})
a 1-3 | {x}[{index}]
a 2-3 | {x}[:, {index1}]
a 1-3 | tn.index_select({x}, {flat_index}, 0)
a 1-3 | tn.take_along_axis({x}, tn.argsort({x}, axis={last}), axis={last})
f 1-3 | tn.gather({x}, tn.argsort({same}, axis=0), axis=0)
f 1-3 | tn.scatter({x}, tn.argsort({same}, axis=0), {same} * 2, axis=0, reduce="{word:add,max,min,mul}")
f 1-3 | tn.scatter_add({x}, tn.argsort({same}, axis={last}), {same}, axis={last})
f 1-3 | tn.index_add({x}, {flat_index}, tn.take({same}, {flat_index}, axis=0), 0)
f 1-3 | tn.index_copy({x}, {flat_index}[:1], {same}[:1] * 3, 0)
f 1-3 | tn.index_fill({x}, {flat_index}, {num}, 0)
a 1-3 | tn.sort({x}, axis={axis}, descending={bool})
a 1-3 | tn.argsort({x}, axis={axis}, descending={bool})
fi 1-3 | tn.topk({x}, 1, axis={axis}, largest={bool})
fi 1-3 | tn.topk({x}, min(2, {x}.shape[{last}]), axis={last})
f 1-3 | tn.kthvalue({x}, 1, {axis})
f 1-1 | tn.searchsorted(tn.sort({x}), {same}, side="{word:left,right}")
f 1-3 | tn.bucketize({x}, tn.tensor([-1.0, 0.0, 0.5]).astype({x}.dtype))
f 1-4 | tn.masked_fill({x}, {same} > 0.1, {num})
f 1-4 | tn.where({same} > 0.2, {x}, {num})
f 1-4 | tn.where({x} > {wide}, {x}, {wide})
f 1-4 | tn.clip({x}, -0.5, {num})
f 1-3 400 | tn.one_hot(tn.argmax({x}, {axis}), 40)
f 2-2 | tn.take({x}, {index}, axis=0)
i 1-1 | tn.bincount(tn.abs({x}) % 7, minlength=7)
f 2-3 | tn.diagonal_scatter({x}, tn.diagonal({x}) * 2) if {x}.ndim == 2 else {x}
f 1-4 | tn.isclose({x}, {same})
f 4-4 400 | tn.grid_sample({x}, tn.affine_grid(tn.tensor([[[1.0, 0.2, 0.1], [0.0, 0.7, 0.0]]]).astype({x}.dtype).expand({x}.shape[0], 2, 3), {x}.shape))
"""

PRODUCTS = """
f 2-2 | {x} @ tn.matrix_transpose({same})
f 2-2 | tn.matrix_transpose({x}) @ {same}
f 2-3 | tn.matmul({x}, {right})
f 2-3 | tn.linear({x}, {right}.T)
f 2-2 | tn.relu(tn.matmul({x}, {right}) + 0.5)
f 2-2 | tn.softmax({x} @ {x}.T / 3, -1) @ {x}
f 1-1 | tn.dot({x}, {same})
f 1-1 60 | tn.outer({x}, {same})
f 1-2 100 | tn.inner({x}, {same})
f 1-4 | tn.vecdot({x}, {same})
f 2-3 | tn.tensordot({x}, {same}, axes=([0], [0]))
f 2-2 | tn.einsum("ij,ij->i", {x}, {same})
f 2-2 | tn.einsum("ij,kj->ik", {x}, {same})
f 3-3 | tn.einsum("bij,bkj->bik", {x}, {same})
f 3-3 | tn.bmm({x}, tn.matrix_transpose({same}))
f 2-2 | tn.cdist({x}, {same})
f 2-2 | tn.pairwise_distance({x}, {same})
f 2-3 | tn.nn.functional.scaled_dot_product_attention({x}, {same}, {x}, is_causal={bool}) if {x}.ndim == 3 else {x}
f 2-2 30 | tn.linalg.inv({x} @ {x}.T + 3 * tn.eye({x}.shape[0], dtype={x}.dtype)) if {x}.dtype in (tn.float32, tn.float64) else {x}
f 2-2 30 | tn.linalg.solve({x} @ {x}.T + 3 * tn.eye({x}.shape[0], dtype={x}.dtype), {x}) if {x}.dtype in (tn.float32, tn.float64) else {x}
f 2-2 30 | tn.linalg.det({x} @ {x}.T + tn.eye({x}.shape[0], dtype={x}.dtype)) if {x}.dtype in (tn.float32, tn.float64) else {x}
f 2-2 30 | tn.linalg.cholesky({x} @ {x}.T + 2 * tn.eye({x}.shape[0], dtype={x}.dtype)) if {x}.dtype in (tn.float32, tn.float64) else {x}
"""

MIXED = """
fiu 0-4 | {x} + {wide}
fiu 0-4 | {x} * {wide}
f 0-4 | {x} * {num} + {wide}
f 0-4 | {x} * {x} * 0.73 + {x} * 1.37
f 0-4 | {x} * {num}
f 0-4 | {num} - {x}
f 0-4 | {x} / (tn.abs({wide}) + 1)
f 0-4 | {x} % 0.75
iu 0-4 | {x} // 2 + {x} % 3
i 0-4 | -{x}
iu 0-4 | {x} * 3 + 1
a 0-4 | {x}.astype("{dtype}") if {x}.dtype.kind != "f" else {x}.astype("{float}")
f 0-4 | tn.clip({x}, -9, 9).astype("{word:int32,int64,int8}")
f 0-4 | {x} > {wide}
b 0-4 | tn.where({x}, {num}, 0.5)
b 0-4 | ~{x}
f 0-4 | tn.nan_to_num({x})
f 0-4 | tn.tanh({x})
f 0-4 | tn.relu({x})
f 0-4 | tn.exp(tn.tanh({x}))
f 0-4 | tn.sqrt(tn.abs({x}) + 0.1)
f 0-4 | tn.lerp({x}, {same}, 0.3)
f 0-4 | {x}.detach() * {x}
"""

IN_PLACE = r"""
f 1-4 | {t} = {x}.clone()\n{t}[{key}] = {num}
f 1-4 | {t} = {x} * 1.5\n{t}[{key}] *= {num}
f 1-4 | {t} = {x} + 0.0\n{t}[{key}] += {x}[{key}]
f 1-4 | {t} = tn.tanh({x})\n{t} += {wide}\n{t} *= 0.5
f 2-3 | {t} = {x}.clone()\n{t}[:, 0] = {x}[:, -1]\n{t}[0] = 0.25
f 1-3 | {t} = {x} * 1.0\n{u} = {t}[0]\n{t}[-1] = {u} * 2
f 1-3 | {t} = {x}.clone()\n{t}[{index}] = {num}
f 1-3 | {t} = {x}.clone()\n{t}[{t} > 0.5] = {num}
"""

CONTROL = r"""
f 0-3 | tn.cond({x}.sum() > {num}, lambda a: {fn}, lambda a: {fn}, {x})
f 1-3 | tn.cond(({x} > 0).any(), lambda a: {fn}, lambda a: {fn} * {num}, {x})
f 0-3 | tn.switch({x}.sum().astype("int64") % 3 if {x}.dtype.kind == "i" else ({x}.sum() > 0).astype("int64"), [lambda a: {fn}, lambda a: {fn}, lambda a: {fn}], {x})
f 0-3 | tn.fori_loop(0, {int:0,4}, lambda k, a: {fn}, {x})
f 0-3 | tn.fori_loop(0, {int:1,4}, lambda k, a: tn.sin(a) * 0.5 + {x}, {x})
f 0-3 | tn.while_loop(lambda s: s[0] < {int:0,4}, lambda s: (s[0] + 1, (lambda a: {fn})(s[1])), (0, {x}))[1]
f 1-3 | tn.while_loop(lambda a: tn.abs((a * a).sum() - 5) < 4, lambda a: a * 0.5, {x})
f 1-3 400 | tn.scan(lambda a, r: ({fn}, a * r), {x}[0] * 0.5, {x})
f 1-3 400 | tn.scan(lambda c, a: (c + a, {fn}), {x}[0] * 0, {x})[1]
f 2-3 400 | tn.map(lambda a: {fn}, {x})
f 1-3 | tn.vmap(lambda a: {fn})({x})
f 2-3 | tn.vmap(lambda a: {fn}, in_axes=1)({x})
f 0-3 | if {x}.sum() > {num}:\n    {t} = (lambda a: {fn})({x})\nelse:\n    {t} = {x} * {num}
f 0-3 | {t} = {x}\nfor k in range({int:1,4}):\n    {t} = tn.sin({t}) + {x} * k
f 0-3 | {t} = {x}\nwhile tn.abs(({t} * {t}).sum() - 5) < 4:\n    {t} = {t} * 0.5
f 1-3 400 | {t} = {x}[0]\nfor row in {x}:\n    {t} = {t} * 0.5 + row
f 1-3 | {t} = {x}\nfor k in range(3):\n    if {t}.max() < 0.7:\n        break\n    {t} = {t} * 0.6
f 1-3 | tn.checkpoint(lambda a: {fn})({x})
f 0-3 | tn.grad(lambda a: tn.square({fn}).sum())({x})
"""

# Of a tensor `a`; the result has its shape.
FUNCTIONS = """
tn.tanh(a)
tn.sin(a)
a * 0.5 + 1.0
a * a * 0.3
tn.relu(a)
a - a.mean()
a / (1 + tn.abs(a))
tn.softmax(a.reshape(-1), 0).reshape(a.shape)
tn.flip(a)
a - a.max()
tn.where(a > 0.2, a, 0.5 * a)
tn.exp(-a * a)
tn.cumsum(a.reshape(-1), 0).reshape(a.shape) * 0.2
tn.cond(a.sum() > 0.3, lambda b: b * 0.5, lambda b: tn.sin(b), a)
tn.sort(a.reshape(-1)).reshape(a.shape)
"""

# (weight, phrases)
TABLE = ((2, VIEWS), (2.5, SHUFFLES), (3, WINDOWS), (3, ROWS), (2.5, REDUCTIONS), (1.5, SELECTING), (1, PRODUCTS),
         (2, MIXED), (0.6, IN_PLACE), (0.7, CONTROL))
