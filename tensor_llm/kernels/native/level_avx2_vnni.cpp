// AVX2 with AVX_VNNI.
#include "standard.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#define NOIDLE_VNNI
namespace level_avx2_vnni {
#include "lanes_avx2.h"
#include "kernels.h"
}  // namespace level_avx2_vnni
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Level kAvx2Vnni = {
    "avx2_vnni",
    level_avx2_vnni::linear_entry,
    level_avx2_vnni::dequantize_entry,
    level_avx2_vnni::quantize_entry,
    level_avx2_vnni::read_entry,
    level_avx2_vnni::scratch_entry,
    level_avx2_vnni::step_entry,
};
#endif
