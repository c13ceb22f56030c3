// AVX-512 with VNNI, BF16 and AMX.
#include "standard.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16")
#endif
#define NOIDLE_BF16
#define NOIDLE_AMX
namespace level_amx {
#include "lanes_avx512.h"
#include "kernels.h"
}  // namespace level_amx
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Level kAmx = {
    "amx",
    level_amx::linear_entry,
    level_amx::dequantize_entry,
    level_amx::quantize_entry,
    level_amx::read_entry,
    level_amx::scratch_entry,
    level_amx::step_entry,
};
#endif
