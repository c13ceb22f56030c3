// Sixteen lanes in plain C++, for every processor; also the definition of what the vector
// versions do. Compilers turn the loops into whatever vectors the target has.

struct Lanes {
  struct F { float v[16]; };
  struct I { int32_t v[16]; };
  struct Bytes { uint8_t v[64]; };

  static constexpr int kOffset8 = 128;
  static constexpr int kRows = 2;
  // vectors that are summed lane by lane at once
  static constexpr int kSums = 4;

  INLINE F zero() { return set1(0); }
  INLINE F set1(float x) { return map(F{}, F{}, [x](float, float) { return x; }); }
  INLINE F load(const float* p) {
    F x;
    std::memcpy(x.v, p, sizeof x.v);
    return x;
  }
  INLINE void store(float* p, F x) { std::memcpy(p, x.v, sizeof x.v); }
  INLINE F add(F a, F b) { return map(a, b, [](float x, float y) { return x + y; }); }
  INLINE F sub(F a, F b) { return map(a, b, [](float x, float y) { return x - y; }); }
  INLINE F mul(F a, F b) { return map(a, b, [](float x, float y) { return x * y; }); }
  INLINE F div(F a, F b) { return map(a, b, [](float x, float y) { return x / y; }); }
  INLINE F fma(F a, F b, F c) { return add(mul(a, b), c); }
  INLINE F max(F a, F b) { return map(a, b, [](float x, float y) { return x > y ? x : y; }); }
  INLINE F min(F a, F b) { return map(a, b, [](float x, float y) { return x < y ? x : y; }); }
  INLINE F abs(F a) { return map(a, a, [](float x, float) { return std::fabs(x); }); }
  INLINE F round(F a) { return map(a, a, [](float x, float) { return std::nearbyint(x); }); }
  // a * 2^n for whole n
  INLINE F times_power_of_2(F a, F n) {
    return map(a, n, [](float x, float y) { return std::ldexp(x, int(y)); });
  }
  INLINE float sum(F a) {
    float total = 0;
    for (float x : a.v) total += x;
    return total;
  }
  INLINE void sums(const F* a, float* to) {
    for (int i = 0; i < kSums; i++) to[i] = sum(a[i]);
  }
  INLINE float largest(F a) {
    float most = a.v[0];
    for (float x : a.v) most = x > most ? x : most;
    return most;
  }

  INLINE F load_bf16(const uint16_t* p) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = widen(p[i]);
    return x;
  }
  // rounds to the nearest, ties to even
  INLINE void store_bf16(uint16_t* p, F x) {
    for (int i = 0; i < 16; i++) {
      uint32_t bits;
      std::memcpy(&bits, &x.v[i], 4);
      p[i] = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
  // rounds to the nearest; the values are within -127 and 127
  INLINE void store_int8(int8_t* p, F x) {
    for (int i = 0; i < 16; i++) p[i] = int8_t(std::nearbyint(x.v[i]));
  }
  INLINE F load_uint8(const uint8_t* p) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = p[i];
    return x;
  }

  INLINE I set1_int(int x) {
    I all;
    for (int& lane : all.v) lane = x;
    return all;
  }
  INLINE I add_int(I a, I b) {
    for (int i = 0; i < 16; i++) a.v[i] += b.v[i];
    return a;
  }
  INLINE F to_float(I a) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = float(a.v[i]);
    return x;
  }
  INLINE Bytes load_bytes(const uint8_t* p) {
    Bytes b;
    std::memcpy(b.v, p, sizeof b.v);
    return b;
  }
  INLINE Bytes low_nibbles(Bytes b) {
    for (uint8_t& x : b.v) x &= 15;
    return b;
  }
  INLINE Bytes high_nibbles(Bytes b) {
    for (uint8_t& x : b.v) x >>= 4;
    return b;
  }
  // lane i gains the products of its four codes w[4i..4i+3] with the four signed bytes of x;
  // the codes count as (code - 128 + kOffset8)
  INLINE I dot8(I acc, Bytes w, int x) {
    int8_t four[4];
    std::memcpy(four, &x, 4);
    for (int i = 0; i < 64; i++) acc.v[i / 4] += int(w.v[i]) * four[i % 4];
    return acc;
  }
  // the same for codes of 0 to 15
  INLINE I dot4(I acc, Bytes w, int x) { return dot8(acc, w, x); }

  // gains 32 products; which lane gains which is left open, their sum is what counts
  INLINE F dot_bf16(F acc, const uint16_t* w, const uint16_t* x) {
    for (int i = 0; i < 32; i++) acc.v[i % 16] += widen(w[i]) * widen(x[i]);
    return acc;
  }

 private:
  template <class Op>
  INLINE F map(F a, F b, Op op) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = op(a.v[i], b.v[i]);
    return x;
  }
  INLINE float widen(uint16_t bits) {
    uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
  }
};
