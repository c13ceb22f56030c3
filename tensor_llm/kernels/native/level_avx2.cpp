// AVX2 and FMA.
#include "standard.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace level_avx2 {
#include "lanes_avx2.h"
#include "kernels.h"
}  // namespace level_avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Level kAvx2 = {
    "avx2",
    level_avx2::linear_entry,
    level_avx2::dequantize_entry,
    level_avx2::quantize_entry,
    level_avx2::read_entry,
    level_avx2::scratch_entry,
    level_avx2::step_entry,
};
#endif
