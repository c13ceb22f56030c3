// Sixteen lanes as two 256-bit registers. Needs AVX2 and FMA; with NOIDLE_VNNI also AVX_VNNI.
// The names are those of lanes_plain.h, which defines them.

struct Lanes {
  struct F { __m256 a, b; };
  struct I { __m256i a, b; };
  using Bytes = I;

#ifdef NOIDLE_VNNI
  static constexpr int kOffset8 = 128;
#else
  // dot8 works on signed weights: unsigned ones would overflow the 16-bit sums in between
  static constexpr int kOffset8 = 0;
#endif
  static constexpr int kRows = 4;
  // vectors that are summed lane by lane at once
  static constexpr int kSums = 4;

  INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  INLINE F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
  INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  INLINE F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  INLINE F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  INLINE F abs(F x) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
  }
  INLINE F round(F x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
  INLINE F times_power_of_2(F x, F n) { return mul(x, {power_of_2(n.a), power_of_2(n.b)}); }
  INLINE float sum(F x) {
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  INLINE void sums(const F* x, float* to) {
    for (int i = 0; i < kSums; i++) to[i] = sum(x[i]);
  }
  INLINE float largest(F x) {
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }

  INLINE F load_bf16(const uint16_t* p) { return {widen(p), widen(p + 8)}; }
  INLINE void store_bf16(uint16_t* p, F x) {
    __m256i packed = _mm256_packus_epi32(bf16_bits(x.a), bf16_bits(x.b));
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
  }
  INLINE void store_int8(int8_t* p, F x) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(low, high));
  }
  INLINE F load_uint8(const uint8_t* p) { return {widen_byte(p), widen_byte(p + 8)}; }

  INLINE I set1_int(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  INLINE I add_int(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
  INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  INLINE Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
  }
  INLINE Bytes low_nibbles(Bytes x) {
    __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
  }
  INLINE Bytes high_nibbles(Bytes x) {
    return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
  }
#ifdef NOIDLE_VNNI
  INLINE I dot8(I acc, Bytes w, int x) {
    __m256i all = _mm256_set1_epi32(x);
    return {_mm256_dpbusd_avx_epi32(acc.a, w.a, all), _mm256_dpbusd_avx_epi32(acc.b, w.b, all)};
  }
  INLINE I dot4(I acc, Bytes w, int x) { return dot8(acc, w, x); }
#else
  INLINE I dot8(I acc, Bytes w, int x) {
    __m256i all = _mm256_set1_epi32(x);
    return {_mm256_add_epi32(acc.a, signed_dot(w.a, all)),
            _mm256_add_epi32(acc.b, signed_dot(w.b, all))};
  }
  INLINE I dot4(I acc, Bytes w, int x) {
    __m256i all = _mm256_set1_epi32(x), one = _mm256_set1_epi16(1);
    __m256i a = _mm256_madd_epi16(_mm256_maddubs_epi16(w.a, all), one);
    __m256i b = _mm256_madd_epi16(_mm256_maddubs_epi16(w.b, all), one);
    return {_mm256_add_epi32(acc.a, a), _mm256_add_epi32(acc.b, b)};
  }
#endif

  INLINE F dot_bf16(F acc, const uint16_t* w, const uint16_t* x) {
    acc = fma(load_bf16(w), load_bf16(x), acc);
    return fma(load_bf16(w + 16), load_bf16(x + 16), acc);
  }

 private:
  INLINE __m256 power_of_2(__m256 n) {
    __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  INLINE __m256 widen(const uint16_t* p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  INLINE __m256 widen_byte(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
  }
  // rounds to the nearest, ties to even; the upper half of each lane becomes 0
  INLINE __m256i bf16_bits(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  }
  // |w| * sign(w) x: at most 128 * 127 * 2, which 16 bits hold
  INLINE __m256i signed_dot(__m256i code, __m256i x) {
    __m256i w = _mm256_xor_si256(code, _mm256_set1_epi8(char(0x80)));
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};
