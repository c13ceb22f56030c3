// Products of a few rows of activations with packed or plain weights: each block of 16
// weight rows is read from memory once, whatever the number of activation rows.

// bytes read ahead of use; chunks are long runs, but the hardware stops at each page
static constexpr int64_t kAhead = 8192;
// of weights; a chunk is what one thread takes at a time
static constexpr int64_t kChunkBytes = 64 * 1024;

// One use of an operand: y (rows, weight rows) = x weight^T, or y += with `add`.
struct Product {
  const Weight* weight;
  float* y;
  int64_t stride;
  bool add;
};

INLINE int64_t block_bytes(const Weight& w) {
  if (w.kind == kBf16) return 32 * w.columns;
  if (w.kind == kFloat) return 64 * w.columns;
  return round_up(w.columns, w.group) * (w.kind == kInt8 ? 16 : 8);
}

INLINE int64_t block_count(const Weight& w) { return (w.rows + 15) / 16; }

INLINE int32_t four_codes(const int8_t* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return x;
}

INLINE void prefetch(const void* p) { __builtin_prefetch((const char*)p + kAhead, 0, 2); }

// 32 columns of a block, for N rows of activations; returns where the next codes lie.
template <int N>
INLINE const uint8_t* dot_int8(const uint8_t* w, const int8_t* x, int64_t stride, Lanes::I* acc) {
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; quad++) {
    Lanes::Bytes codes = Lanes::load_bytes(w);
    prefetch(w);
#pragma GCC unroll 16
    for (int m = 0; m < N; m++)
      acc[m] = Lanes::dot8(acc[m], codes, four_codes(x + m * stride + quad * 4));
    w += 64;
  }
  return w;
}

template <int N>
INLINE const uint8_t* dot_int4(const uint8_t* w, const int8_t* x, int64_t stride, Lanes::I* acc) {
#pragma GCC unroll 4
  for (int quad = 0; quad < 8; quad += 2) {
    Lanes::Bytes codes = Lanes::load_bytes(w);
    prefetch(w);
    Lanes::Bytes low = Lanes::low_nibbles(codes), high = Lanes::high_nibbles(codes);
#pragma GCC unroll 16
    for (int m = 0; m < N; m++) {
      acc[m] = Lanes::dot4(acc[m], low, four_codes(x + m * stride + quad * 4));
      acc[m] = Lanes::dot4(acc[m], high, four_codes(x + m * stride + quad * 4 + 4));
    }
    w += 64;
  }
  return w;
}

// Adds the groups from `first` on of one block, against N rows of activations from row m on;
// `codes` lie at the first of these groups, `scales` at the block's first.
template <int N, int kind>
INLINE void add_groups(const Weight& w, const uint8_t* codes, const uint16_t* scales,
                       const Operand& x, int64_t m, int64_t first, Lanes::F* sums) {
  const int8_t* activations = x.codes + m * x.stride + first * w.group;
  for (int64_t g = first; g < x.groups; g++) {
    Lanes::I acc[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; n++) acc[n] = Lanes::set1_int(-x.offsets[(m + n) * x.groups + g]);
    for (int i = 0; i < w.group; i += 32) {
      if (kind == kInt8) codes = dot_int8<N>(codes, activations, x.stride, acc);
      if (kind == kInt4) codes = dot_int4<N>(codes, activations, x.stride, acc);
      activations += 32;
    }
    Lanes::F scale = Lanes::load_bf16(scales + g * 16);
#pragma GCC unroll 16
    for (int n = 0; n < N; n++) {
      Lanes::F both = Lanes::mul(scale, Lanes::set1(x.scales[(m + n) * x.groups + g]));
      sums[n] = Lanes::fma(both, Lanes::to_float(acc[n]), sums[n]);
    }
  }
}

template <int N, int kind>
INLINE void packed_block(const Weight& w, int64_t block, const Operand& x, int64_t m,
                         Lanes::F* sums) {
  const uint8_t* codes = (const uint8_t*)w.codes + block * block_bytes(w);
  for (int n = 0; n < N; n++) sums[n] = Lanes::zero();
  add_groups<N, kind>(w, codes, w.scales + block * x.groups * 16, x, m, 0, sums);
}

INLINE float widened(float x) { return x; }
INLINE float widened(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

template <class T>
INLINE float narrow_tail(const T* w, const T* x, int64_t from, int64_t to) {
  float total = 0;
  for (int64_t k = from; k < to; k++) total += widened(w[k]) * widened(x[k]);
  return total;
}

INLINE Lanes::F dot_dense(Lanes::F acc, const uint16_t* w, const uint16_t* x) {
  return Lanes::dot_bf16(acc, w, x);
}
INLINE Lanes::F dot_dense(Lanes::F acc, const float* w, const float* x) {
  acc = Lanes::fma(Lanes::load(w), Lanes::load(x), acc);
  return Lanes::fma(Lanes::load(w + 16), Lanes::load(x + 16), acc);
}

INLINE const uint16_t* rows_of(const Operand& x, const uint16_t*) { return x.bf16; }
INLINE const float* rows_of(const Operand& x, const float*) { return x.floats; }

// R weight rows, bfloat16 or float32, against N rows of activations; out is (N, 16), from column
// `row` of the block.
template <int N, int R, class T>
INLINE void dense_rows(const T* const* w, const Operand& x, int64_t m, int64_t columns,
                       float* out) {
  const T* a = rows_of(x, w[0]) + m * x.stride;
  Lanes::F acc[R][N];
  for (int r = 0; r < R; r++)
    for (int n = 0; n < N; n++) acc[r][n] = Lanes::zero();
  int64_t k = 0;
  for (; k + 32 <= columns; k += 32) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
      for (size_t byte = 0; byte < 32 * sizeof(T); byte += 64)
        prefetch((const char*)(w[r] + k) + byte);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
#pragma GCC unroll 8
      for (int r = 0; r < R; r++)
        acc[r][n] = dot_dense(acc[r][n], w[r] + k, a + n * x.stride + k);
  }
  for (int r = 0; r < R; r++)
    for (int n = 0; n < N; n++)
      out[n * 16 + r] = Lanes::sum(acc[r][n]) + narrow_tail(w[r], a + n * x.stride, k, columns);
}

template <int N, class T>
INLINE void dense_block(const Weight& w, int64_t block, const Operand& x, int64_t m,
                        Lanes::F* sums) {
  // one row is one run of memory; with more rows of activations their loads are shared
  constexpr int kTogether = N == 1 ? 1 : N <= 4 ? 4 : 2;
  float out[N * 16];
  for (int first = 0; first < 16; first += kTogether) {
    const T* rows[kTogether];
    for (int r = 0; r < kTogether; r++) {
      // beyond the last row it is read again, and not stored
      int64_t row = std::min(block * 16 + first + r, w.rows - 1);
      rows[r] = (const T*)w.codes + row * w.columns;
    }
    dense_rows<N, kTogether>(rows, x, m, w.columns, out + first);
  }
  for (int n = 0; n < N; n++) sums[n] = Lanes::load(out + n * 16);
}

INLINE void put(const Product& p, int64_t block, int64_t m, Lanes::F sum) {
  const Weight& w = *p.weight;
  int64_t first = block * 16, count = std::min<int64_t>(16, w.rows - first);
  float* y = p.y + m * p.stride + first;
  float lanes[16], others[16] = {};
  if (w.bias) {
    std::memcpy(others, w.bias + first, size_t(count) * 4);
    sum = Lanes::add(sum, Lanes::load(others));
  }
  if (count == 16) {
    Lanes::store(y, p.add ? Lanes::add(Lanes::load(y), sum) : sum);
    return;
  }
  Lanes::store(lanes, sum);
  for (int64_t i = 0; i < count; i++) y[i] = p.add ? y[i] + lanes[i] : lanes[i];
}
