"""Windows of 3 x 3 taps with fewer multiplications: `winograd_transforms` says how, `winograd_blocking` cuts images,
`transform_inputs` turns factors; `forward_few_filters` makes a convolution of them, `weight_grad_wide` the gradient of
its kernel.
"""
