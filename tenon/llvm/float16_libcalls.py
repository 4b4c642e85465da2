"""float16 on processors without instructions for it: the functions that LLVM calls there, as LLVM IR.

x86-64 converts float16 since F16C (2012).  For older ones, and virtual ones that hide it, LLVM calls functions of the
compiler's library, which few processes have; so they are brought along, written with integers, rounding to even.
"""

FUNCTIONS = {"__extendhfsf2": "tenon_extendhfsf2", "__truncsfhf2": "tenon_truncsfhf2",
             "__truncdfhf2": "tenon_truncdfhf2"}       # what LLVM calls, and what it is called here

# Of the magnitudes: 0x7c00 and 0x7f800000 are infinite, above lies what is no number, which becomes a quiet one.
# Multiplied by 2**112, bits moved to their places have the exponent of a float; subnormal ones are exact so too.
# Below 2**-14 the sum with 0.5 has the bits of a float16 at its end, rounded.  Above, rounding is integer addition.
# A double is rounded to odd first, so that the second rounding sees whether anything was lost in the first one.
MODULE = """
define float @tenon_extendhfsf2(half %x) {
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %signed = and i32 %bits, 32768
  %sign = shl i32 %signed, 16
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %infinite = or i32 %moved, 2139095040
  %nan = or i32 %infinite, 4194304
  %is_nan = icmp ugt i32 %size, 31744
  %special = select i1 %is_nan, i32 %nan, i32 %infinite
  %is_finite = icmp ult i32 %size, 31744
  %chosen = select i1 %is_finite, i32 %finite, i32 %special
  %whole = or i32 %chosen, %sign
  %y = bitcast i32 %whole to float
  ret float %y
}

define half @tenon_truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %signed = and i32 %bits, -2147483648
  %sign = lshr i32 %signed, 16
  %size = and i32 %bits, 2147483647
  %magnitude = bitcast i32 %size to float
  %sum = fadd float %magnitude, 0.5
  %sum_bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum_bits, 1056964608
  %cut = lshr i32 %size, 13
  %odd = and i32 %cut, 1
  %rebased = add i32 %size, 3355447295
  %up = add i32 %rebased, %odd
  %normal = lshr i32 %up, 13
  %is_normal = icmp uge i32 %size, 947912704
  %finite = select i1 %is_normal, i32 %normal, i32 %subnormal
  %payload = and i32 %cut, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %size, 2139095040
  %special = select i1 %is_nan, i32 %nan, i32 31744
  %is_large = icmp uge i32 %size, 1199570944
  %chosen = select i1 %is_large, i32 %special, i32 %finite
  %whole = or i32 %chosen, %sign
  %short = trunc i32 %whole to i16
  %y = bitcast i16 %short to half
  ret half %y
}

define half @tenon_truncdfhf2(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %lossy = fcmp one double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %back_size = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %back_size, %size
  %bits = bitcast float %near to i32
  %one_less = sext i1 %over to i32
  %below = add i32 %bits, %one_less
  %odd = or i32 %below, 1
  %chosen = select i1 %lossy, i32 %odd, i32 %bits
  %single = bitcast i32 %chosen to float
  %y = call half @tenon_truncsfhf2(float %single)
  ret half %y
}

declare double @llvm.fabs.f64(double)
"""
