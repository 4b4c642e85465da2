"""Windows of 3 x 3 taps with fewer multiplications: `transforms` says how, `tiles` cuts images, `copies` turns factors;
`places` makes a convolution of them, `filters` the gradient of its kernel.
"""
