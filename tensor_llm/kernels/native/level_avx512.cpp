// AVX-512 with VNNI.
#include "standard.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif
namespace level_avx512 {
#include "lanes_avx512.h"
#include "kernels.h"
}  // namespace level_avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Level kAvx512 = {
    "avx512",
    level_avx512::linear_entry,
    level_avx512::dequantize_entry,
    level_avx512::quantize_entry,
    level_avx512::read_entry,
    level_avx512::scratch_entry,
    level_avx512::step_entry,
};
#endif
