// AVX-512 with VNNI and BF16.
#include "standard.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")
#endif
#define NOIDLE_BF16
namespace level_avx512_bf16 {
#include "lanes_avx512.h"
#include "kernels.h"
}  // namespace level_avx512_bf16
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Level kAvx512Bf16 = {
    "avx512_bf16",
    level_avx512_bf16::linear_entry,
    level_avx512_bf16::dequantize_entry,
    level_avx512_bf16::quantize_entry,
    level_avx512_bf16::read_entry,
    level_avx512_bf16::scratch_entry,
    level_avx512_bf16::step_entry,
};
#endif
