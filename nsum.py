import numpy as np, tenon as tn, scipy.integrate as it
import scipy.integrate._tanhsinh as m
src=open(m.__file__).read()
import re
i=src.index("def nsum("); print(src[i+11000:i+21000])
