// Sixteen lanes as one 512-bit register. Needs AVX-512 F, BW, DQ, VL and VNNI; with
// NOIDLE_BF16 also AVX512_BF16. The names are those of lanes_plain.h, which defines them.

struct Lanes {
  using F = __m512;
  using I = __m512i;
  using Bytes = __m512i;

  // int8 codes are unsigned: code = weight + 128
  static constexpr int kOffset8 = 128;
  // rows of activations that fit the registers at once
  static constexpr int kRows = 8;
  // vectors that are summed lane by lane at once
  static constexpr int kSums = 16;

  INLINE F zero() { return _mm512_setzero_ps(); }
  INLINE F set1(float x) { return _mm512_set1_ps(x); }
  INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
  INLINE F abs(F a) { return _mm512_abs_ps(a); }
  INLINE F round(F a) { return _mm512_roundscale_ps(a, 8); }
  INLINE F times_power_of_2(F a, F n) { return _mm512_scalef_ps(a, n); }
  INLINE float sum(F a) { return _mm512_reduce_add_ps(a); }
  INLINE float largest(F a) { return _mm512_reduce_max_ps(a); }
  INLINE void sums(const F* a, float* to) {
    store(to, across(a, [](F x, F y) { return add(x, y); }));
  }
  // the largest of each of 16
  INLINE F maxima(const F* a) {
    return across(a, [](F x, F y) { return max(x, y); });
  }

  INLINE F load_bf16(const uint16_t* p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  INLINE void store_bf16(uint16_t* p, F x) {
#ifdef NOIDLE_BF16
    _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x));
#else
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(bf16_bits(x)));
#endif
  }
  INLINE void store_int8(int8_t* p, F x) {
    _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  INLINE F load_uint8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)));
  }

  INLINE I set1_int(int x) { return _mm512_set1_epi32(x); }
  INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  INLINE Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  INLINE Bytes low_nibbles(Bytes b) { return _mm512_and_si512(b, _mm512_set1_epi8(15)); }
  INLINE Bytes high_nibbles(Bytes b) { return low_nibbles(_mm512_srli_epi16(b, 4)); }
  INLINE I dot8(I acc, Bytes w, int x) {
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
  }
  INLINE I dot4(I acc, Bytes w, int x) { return dot8(acc, w, x); }

  INLINE F dot_bf16(F acc, const uint16_t* w, const uint16_t* x) {
    __m512i a = _mm512_loadu_si512(w), b = _mm512_loadu_si512(x);
#ifdef NOIDLE_BF16
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
#else
    acc = _mm512_fmadd_ps(odd(a), odd(b), acc);
    return _mm512_fmadd_ps(even(a), even(b), acc);
#endif
  }

 private:
  // lane i of the result is all of a[i]
  template <class Op>
  INLINE F across(const F* a, Op op) {
    F b[8], c[4], d[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      b[i] = op(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
      c[i] = op(_mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0x44),
                _mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0xee));
    for (int i = 0; i < 2; i++)
      d[i] = op(_mm512_shuffle_f32x4(c[2 * i], c[2 * i + 1], 0x88),
                _mm512_shuffle_f32x4(c[2 * i], c[2 * i + 1], 0xdd));
    return op(_mm512_shuffle_f32x4(d[0], d[1], 0x88), _mm512_shuffle_f32x4(d[0], d[1], 0xdd));
  }
  // rounds to the nearest, ties to even; the upper half of each lane becomes 0
  INLINE __m512i bf16_bits(F x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
    return _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  }
  INLINE F even(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  INLINE F odd(__m512i x) {
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000))));
  }
};
