"""Turns erf, erfc, erfinv and the normal distribution function into polynomials and one exponential or logarithm.

erf: a polynomial near zero; beyond, 1 less another one, or 1 - exp(-a*F(a)) in double precision. erfc: exp(-a*a) times
a polynomial in (a - k)/(a + k) over 1 + 2*a (Shepherd and Laframboise 1981). erfinv: polynomials in
w = -log(1 - x*x) (Giles 2010). Polynomials: tools/minimax.py erf erf_far_32 erf_far_64 erfc_32 ...;
quotients of two: tools/rational.py normal_cdf.
"""

import math

from tenon.backends.cpu.mathematics.double_double import quick_two_sum, quotient, two_product, two_sum
from tenon.backends.cpu.mathematics.exp_sigmoid import exp_of_sum
from tenon.backends.cpu.mathematics.logarithm import log
from tenon.backends.cpu.mathematics.notation import (
    Number,
    copysign,
    fma,
    maximum,
    minimum,
    polynomial,
    sqrt,
    where,
)

# erf(x) = x + x*NEAR(x*x) for |x| < 1
NEAR = {
    32: (0.12837916612625122, -0.3761262595653534, 0.11283578723669052, -0.026853347197175026, 0.005187162198126316,
         -0.0007997853099368513, 7.806903158780187e-05),
    64: (0.1283791670955126, -0.376126389031841, 0.11283791670971098, -0.026866170648031127, 0.005223977652692067,
         -0.0008548328535741965, 0.000120553861900509, -1.4926881350987045e-05, 1.648105651387515e-06,
         -1.6557099060428168e-07, 1.6012989028754054e-08, -1.6463700063234825e-09, 1.4341620756628042e-10)}  # fmt: skip
# erf(a) = 1 - FAR((a - 2.5) * 0.6875) from 1 to where it is 1 in single precision, 1 - exp(-a * FAR(a)) in double
FAR = {
    32: (0.00040693324990570545, -0.0031680932734161615, 0.011523750610649586, -0.025706686079502106,
         0.03856036067008972, -0.039733532816171646, 0.02670578472316265, -0.007866719737648964,
         -0.005776542238891125, 0.008139658719301224, -0.0025883286725729704, -0.0013021192280575633,
         0.0008055981015786529),
    64: (1.1283792000864785, 0.6366193775138965, 0.10277482588130668, -0.019136271362490496, -0.00018987291302286445,
         0.001660632802664286, -0.0005394834874224566, -3.113491568426457e-05, 0.00011591195115121231,
         -6.704111244356996e-05, 2.50739846950791e-05, -6.995322937297996e-06, 1.5103433956001653e-06,
         -2.5294940296460906e-07, 3.225625681445732e-08, -3.0051561574731475e-09, 1.8844302465488164e-10,
         -6.516761899596907e-12, 3.353260493064435e-14, 3.809561758604771e-15)}  # fmt: skip
FAR_END = {32: 3.9, 64: 6.0}
# (1 + 2*a) * exp(a*a) * erfc(a) = 1 + ERFC((a - centre) / (a + centre)) from 1/2 to where erfc is 0
ERFC = {
    32: (0.27697837352752686, -0.09276379644870758, -0.16603045165538788, 0.16405010223388672,
         -0.054218992590904236, -0.008019847795367241, 0.00871529895812273, 0.0012005898170173168,
         -0.0014342176727950573, -0.0002938265970442444, 0.00017956762167159468),
    64: (0.2329951186255525, -0.13962111684056253, 0.015379652102618923, 0.06809705425469266, -0.10103906603623695,
         0.09373283499835926, -0.06633036581402502, 0.0371675155371149, -0.016197734033312067, 0.005031969984536247,
         -0.0007577734818125479, -0.00019925675860143019, 0.00015062262873465868, -2.4398838568999388e-05,
         -1.1225063479427288e-05, 5.708343312919473e-06, 3.000517620694496e-07, -8.221748055467416e-07,
         6.661832072932913e-08, 1.053989758173293e-07, -1.2082429156743197e-08, -1.0387122460685952e-08)}  # fmt: skip
# normal_cdf(x) = 1/2 + x * (NORMAL_PART + TOP(x*x) / BOTTOM(x*x)) up to NORMAL_END, where it comes out as 1;
# as 0 or less at -NORMAL_END
NORMAL_PART, NORMAL_END = 0.109375, 5.62
NORMAL_TOP = (245351.609375, 5695.8515625, 1306.490478515625, -29.979110717773438, -1.57404363155365,
              -0.09061111509799957)
NORMAL_BOTTOM = (847304.5, 214226.984375, 24521.0078125, 1620.869140625, 63.63384246826172, 1.0)
ERFC_CENTRE, ERFC_END = {32: 2.0, 64: 4.0}, {32: 10.4, 64: 27.9}
# erfinv(x) / x, for w < 6.25, for sqrt(w) < 4, and beyond
INVERSE = {
    32: (1.6536545753479004, 0.24015817046165466, -0.0060337302275002, -0.0007406877120956779, 0.00018679964705370367,
         -1.3891455637349281e-05, -1.391946398143773e-06, 4.263099242507451e-07, -2.420946998427098e-08,
         -4.638630368702934e-09, 6.377912642463457e-10),
    64: (1.6536545626831023, 0.24015818242558895, -0.0060336708714298255, -0.0007407025341645776,
         0.00018673420803591245, -1.3882523365412091e-05, -1.3654692036561588e-06, 4.2347878067720697e-07,
         -2.907036687083908e-08,
         -4.112635245686004e-09, 1.0512107589502987e-09, -5.415371173588175e-11, -1.2974675099698697e-11,
         2.6334256141060527e-12, -8.16078772483155e-14, -4.0534762901522403e-14, 6.648594904925369e-15,
         2.009832632209388e-17, -1.3415751685376655e-16, 1.1197266415988948e-17, 1.3222231274110614e-18,
         -1.6926795588278089e-19, -4.32368042339641e-21)}  # fmt: skip
INVERSE_MIDDLE = {
    32: (3.083885669708252, 1.0052586793899536, 0.0053719119168818, -0.0037447698414325714, 0.002480356954038143,
         -0.0017294451827183366, 0.0009976524161174893, -0.0002591979573480785, -5.0808361265808344e-05),
    64: (3.0838856104922208, 1.0052589676941597, 0.005370914553602601, -0.003751208507599064, 0.002491442095512193,
         -0.0016882755553080367, 0.0009532893906242287, -0.00035503752825197097, 2.4031010723007467e-05,
         6.828489761484205e-05, -4.731771689927134e-05, 1.2475151327207967e-05, 2.921900176494685e-06,
         -4.013578149435436e-06, 1.505454602970026e-06, 1.794957030390408e-08, -2.777447050993887e-07,
         9.087625376662354e-08, 3.2278170653218342e-09)}  # fmt: skip
INVERSE_FAR = (4.849906401408584, 1.0103004648645262, -0.0001387193183902613, -0.00021503011898213982,
               7.599527830246067e-05, -1.9681781583885072e-05, 4.5260515475844615e-06, -9.92966121450755e-07,
               2.2905087357748882e-07,
               -6.775241405452399e-08, 2.9045428947575378e-08, -1.4907637260067765e-08, 7.740635629582977e-09,
               -3.823910232622655e-09, 1.4290913745158308e-09, -2.4653218194614445e-10,
               -7.17430759065882e-12)  # fmt: skip


def erf(x: Number) -> Number:
    """The error function, within 2 ulp."""
    a = abs(x)
    far = minimum(a, FAR_END[x.format.bits])
    if x.is_double:
        rest = exp_of_sum(-far * polynomial(far, FAR[64]))
    else:       # no exponential: all constants of a loop stay in registers
        rest = polynomial((far - 2.5) * 0.6875, FAR[32])
    return where(a < 1.0, near_zero(x), copysign(1.0 - rest, x))


def near_zero(x: Number) -> Number:
    """erf(x) for |x| < 1."""
    return fma(x, polynomial(x * x, NEAR[x.format.bits]), x)


def erfc(x: Number) -> Number:
    """1 - erf(x), within 2.2 ulp, also where it is tiny."""
    bits = x.format.bits
    k, end = ERFC_CENTRE[bits], ERFC_END[bits]
    a = minimum(abs(x), end)
    t = (a - k) / (a + k)
    one = x.constant(1.0)
    factor = quotient(quick_two_sum(one, polynomial(t, ERFC[bits])), two_sum(one, a + a))
    square, lost = two_product(a, a)
    positive = exp_of_sum(-square, -lost, factor)
    return where(abs(x) < 0.5, 1.0 - near_zero(x), where(x < 0.0, 2.0 - positive, positive))


def normal_cdf(x: Number) -> Number:
    """The share of a standard normal distribution below x, within 2.1 units in the last place of 1/2.

    Being only absolutely precise, one quotient is enough, as it would not be for `erf`, which is small near 0.
    Processors divide beside their multiply-adds, of which a polynomial as good takes nine more.
    """
    if x.is_double:
        return fma(erf(x * math.sqrt(0.5)), 0.5, 0.5)
    near = minimum(maximum(x, -NORMAL_END), NORMAL_END)
    square = near * near
    ratio = polynomial(square, NORMAL_TOP) / polynomial(square, NORMAL_BOTTOM)
    return maximum(fma(near, ratio + NORMAL_PART, 0.5), 0.0)


def erfinv(x: Number) -> Number:
    """The inverse of erf, within 8 ulp (single precision: 2.6); infinite at -1 and 1, nan beyond."""
    bits = x.format.bits
    w = -log((1.0 - x) * (x + 1.0))
    s = sqrt(w)
    factor = where(w < 6.25, polynomial(w - 3.125, INVERSE[bits]), polynomial(s - 3.25, INVERSE_MIDDLE[bits]))
    if x.is_double:
        factor = where(w < 16.0, factor, polynomial(s - 5.0, INVERSE_FAR))
    return where(abs(x).equals(1.0), copysign(x.constant(math.inf), x), x * factor)
