// Products of many rows of activations by AMX. Activations are the left side, in tiles as they are
// loaded. Weights are the right side: a strip of 32 rows becomes panels, some columns at a time,
// small enough for the first-level cache, where they stay while all activations stream past.
// Those are loaded as what is not needed soon; as others they would throw the panels out, and the
// product took half as long again.

// steps of 32 columns: 2 KiB of panels each
static constexpr int64_t kStripSteps = 16;
// strips whose sums are kept at once: while they are added up, the same columns of the
// activations are used, which the second-level cache then holds
static constexpr int64_t kStrips = 8;

// Two blocks of a weight, and the sums (rows, 32) of all rows of activations with them.
struct Strip {
  const Weight* weight;
  int64_t block;
  float* sums;
};

// Asks for the weights of a strip's columns from `step` on, some cache lines at a time.
class StripAhead {
 public:
  // nothing
  StripAhead() = default;
  StripAhead(const Weight& w, int64_t block, int64_t step, int64_t steps) {
    bool dense = w.kind == kBf16;
    int64_t rows = dense ? std::min<int64_t>(32, w.rows - block * 16) : 2;
    if (!dense && (block + 2) * 16 > round_up(w.rows, 16)) rows = 1;
    int64_t step_bytes = dense ? 64 : block_bytes(w) / (round_up(w.columns, w.group) / 32);
    pitch_ = dense ? w.columns * 2 : block_bytes(w);
    bytes_ = steps * step_bytes;
    from_ = (const char*)w.codes + block * block_bytes(w) + step * step_bytes;
    end_ = from_ + rows * pitch_;
  }

  __attribute__((always_inline)) void read(int64_t lines) {
    for (; lines && from_ != end_; lines--) {
      __builtin_prefetch(from_ + at_, 0, 2);
      at_ += 64;
      if (at_ < bytes_) continue;
      at_ = 0;
      from_ += pitch_;
    }
  }
  int64_t lines() const { return from_ == end_ ? 0 : (end_ - from_) / pitch_ * (bytes_ / 64); }

 private:
  const char *from_ = nullptr, *end_ = nullptr;
  int64_t pitch_ = 1, bytes_ = 0, at_ = 0;
};

// One code of each 32 bits as a weight, and what rounds it to bfloat16 once its upper half is taken.
// The code is made the upper digits of a number whose exponent makes its lowest digit 1; `shift`
// takes back what that and the codes' offset add. No step but the last rounds.
template <int bits, int at>
INLINE __m512i weight_bits(__m512i codes, __m512 scale, __m512 shift) {
  constexpr int kTop = 23 - bits - at;
  const __m512i mask = _mm512_set1_epi32(((1 << bits) - 1) << (23 - bits));
  const __m512i exponent = _mm512_set1_epi32((127 + bits) << 23);
  codes = kTop < 0 ? _mm512_srli_epi32(codes, std::max(0, -kTop))
                   : _mm512_slli_epi32(codes, std::max(0, kTop));
  // (codes & mask) | exponent
  codes = _mm512_ternarylogic_epi32(codes, mask, exponent, 0xea);
  __m512 weight = _mm512_fmadd_ps(_mm512_castsi512_ps(codes), scale, shift);
  return _mm512_add_epi32(_mm512_castps_si512(weight), _mm512_set1_epi32(0x8000));
}

// 4 columns of 16 rows, whose codes lie side by side, as bfloat16: two rows of a panel. Of each
// byte the bits from `at` on.
template <int bits, int at>
INLINE void unpack_to_panel(__m512i codes, __m512 scale, __m512 shift, uint16_t* to) {
  // the second of a pair keeps its upper half, the first goes below it
  const __mmask32 upper = 0xaaaaaaaa;
  __m512i low = _mm512_srli_epi32(weight_bits<bits, at>(codes, scale, shift), 16);
  __m512i high = weight_bits<bits, at + 8>(codes, scale, shift);
  _mm512_storeu_si512(to, _mm512_mask_mov_epi16(low, upper, high));
  low = _mm512_srli_epi32(weight_bits<bits, at + 16>(codes, scale, shift), 16);
  high = weight_bits<bits, at + 24>(codes, scale, shift);
  _mm512_storeu_si512(to + 32, _mm512_mask_mov_epi16(low, upper, high));
}

// 32 columns of one block of packed weights as a panel.
INLINE void unpack_panel(const Weight& w, int64_t block, int64_t step, uint16_t* to) {
  int64_t groups = (w.columns + w.group - 1) / w.group;
  __m512 scale = Lanes::load_bf16(w.scales + (block * groups + step * 32 / w.group) * 16);
  const uint8_t* codes = (const uint8_t*)w.codes + block * block_bytes(w);
  if (w.kind == kInt8) {
    __m512 shift = _mm512_mul_ps(scale, _mm512_set1_ps(-256 - 128));
    codes += step * 512;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      unpack_to_panel<8, 0>(Lanes::load_bytes(codes + i * 64), scale, shift, to + i * 64);
    return;
  }
  __m512 shift = _mm512_mul_ps(scale, _mm512_set1_ps(-16 - 8));
  codes += step * 256;
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    Lanes::Bytes both = Lanes::load_bytes(codes + i * 64);
    unpack_to_panel<4, 0>(both, scale, shift, to + i * 128);
    unpack_to_panel<4, 4>(both, scale, shift, to + i * 128 + 64);
  }
}

// Columns of a strip as panels (steps, 2, 16, 16, 2).
static void make_panels(const Strip& strip, int64_t step, int64_t steps, ThreadMemory& memory,
                        uint16_t* to) {
  const Weight& w = *strip.weight;
  int64_t blocks = std::min<int64_t>(2, block_count(w) - strip.block);
  if (w.kind != kBf16) {
    for (int64_t i = 0; i < steps * 2; i++)
      if (i % 2 < blocks) unpack_panel(w, strip.block + i % 2, step + i / 2, to + i * 512);
  } else {
    LeftSide left = left_side(w, strip.block, memory);
    for (int64_t i = 0; i < steps * 2; i++) {
      Lanes::F pairs[16];
      mirror(left.rows + i % 2 * 16 * left.stride + (step + i / 2) * 32, left.stride * 2, pairs);
#pragma GCC unroll 16
      for (int j = 0; j < 16; j++) Lanes::store((float*)(to + i * 512) + j * 16, pairs[j]);
    }
  }
  settle(to);
}

// c (32, 32) = or += 32 rows of activations times panels; with `half` only 16 rows. `upper` and
// `lower` are the tiles of the rows.
template <bool half>
INLINE void multiply_strip(const uint16_t* upper, const uint16_t* lower, const uint16_t* panels,
                           int64_t steps, bool add, float* c, StripAhead& ahead, int64_t lines) {
  if (add) {
    _tile_loadd(0, c, 128);
    _tile_loadd(1, c + 16, 128);
    if (!half) _tile_loadd(2, c + 16 * 32, 128);
    if (!half) _tile_loadd(3, c + 16 * 32 + 16, 128);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (!half) _tile_zero(2);
    if (!half) _tile_zero(3);
  }
  for (int64_t i = 0; i < steps; i++) {
    _tile_loadd(6, panels + i * 1024, 64);
    _tile_stream_loadd(4, upper + i * 512, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panels + i * 1024 + 512, 64);
    _tile_dpbf16ps(1, 4, 7);
    if (!half) {
      _tile_stream_loadd(5, lower + i * 512, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    ahead.read(lines);
  }
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 16, 128);
  if (!half) _tile_stored(2, c + 16 * 32, 128);
  if (!half) _tile_stored(3, c + 16 * 32 + 16, 128);
  settle(c);
}

// The sums of one strip with some columns of all activations.
static void add_columns_of(const Strip& strip, const uint16_t* panels, const Operand& x,
                           int64_t rows, int64_t step, int64_t steps, StripAhead ahead) {
  int64_t passes = (rows + 31) / 32 * steps, lines = (ahead.lines() + passes - 1) / passes;
  // of 16 rows
  int64_t size = x.stride * 16;
  for (int64_t m = 0; m < rows; m += 32) {
    const uint16_t* upper = x.bf16 + m / 16 * size + step * 512;
    float* c = strip.sums + m * 32;
    if (rows - m <= 16)
      multiply_strip<true>(upper, upper, panels, steps, step > 0, c, ahead, lines);
    else multiply_strip<false>(upper, upper + size, panels, steps, step > 0, c, ahead, lines);
  }
}

// The sums of some strips of weights of one kind and width; `behind` is what the thread may take
// next, or has no weight.
static void multiply_strips(const Strip* strips, int64_t count, const Strip& behind,
                            const Operand& x, int64_t rows, ChunkMemory& memory) {
  uint16_t* panels = (uint16_t*)memory.panels.at_least(kStripSteps * 2048);
  const Weight& like = *strips->weight;
  int64_t steps = round_up(like.columns, like.kind == kBf16 ? 32 : like.group) / 32;
  int64_t parts = (steps + kStripSteps - 1) / kStripSteps, part = (steps + parts - 1) / parts;
  for (int64_t step = 0; step < steps; step += part)
    for (int64_t i = 0; i < count; i++) {
      int64_t here = std::min(part, steps - step), next = step;
      Strip following = i + 1 < count ? strips[i + 1] : strips[0];
      if (i + 1 == count && (next = step + part) >= steps) following = behind, next = 0;
      StripAhead ahead;
      if (following.weight)
        ahead = StripAhead(*following.weight, following.block, next, std::min(part, steps - next));
      make_panels(strips[i], step, here, memory.rows, panels);
      add_columns_of(strips[i], panels, x, rows, step, here, ahead);
    }
}

static void put_strip(const Product& p, const Strip& strip, int64_t rows) {
  const Weight& w = *p.weight;
  int64_t first = strip.block * 16;
  bool plain = !w.bias && first + 32 <= w.rows, second = first + 16 < w.rows;
  for (int64_t m = 0; m < rows; m++) {
    Lanes::F left = Lanes::load(strip.sums + m * 32), right = Lanes::load(strip.sums + m * 32 + 16);
    if (!plain) {
      put(p, strip.block, m, left);
      if (second) put(p, strip.block + 1, m, right);
      continue;
    }
    float* y = p.y + m * p.stride + first;
    Lanes::store(y, p.add ? Lanes::add(Lanes::load(y), left) : left);
    Lanes::store(y + 16, p.add ? Lanes::add(Lanes::load(y + 16), right) : right);
  }
}

// The strip behind the last of a chunk.
static Strip strip_behind(const Weight& w, int64_t block) {
  return {block < block_count(w) ? &w : nullptr, block, nullptr};
}

// Strips of the blocks [first, last) of some weights of one size, in turns.
static int64_t lay_out_strips(const Weight* const* weights, int64_t weight_count, int64_t first,
                              int64_t last, int64_t rows, ThreadMemory& memory, Strip* strips) {
  int64_t size = round_up(rows, 32) * 32, count = 0;
  float* sums = (float*)memory.at_least(kStrips * size * 4);
  for (int64_t block = first; block < last; block += 2)
    for (int64_t i = 0; i < weight_count; i++, count++)
      strips[count] = {weights[i], block, sums + count * size};
  return count;
}

static void wide_chunk(const Product& p, int64_t first, int64_t last, const Operand& x,
                       int64_t rows, ChunkMemory& memory) {
  Strip strips[kStrips];
  int64_t count = lay_out_strips(&p.weight, 1, first, last, rows, memory.sums, strips);
  multiply_strips(strips, count, strip_behind(*p.weight, last), x, rows, memory);
  for (int64_t i = 0; i < count; i++) put_strip(p, strips[i], rows);
}

INLINE Lanes::F with_bias(const Weight& w, int64_t from, Lanes::F sum) {
  return w.bias ? Lanes::add(sum, Lanes::load(w.bias + from)) : sum;
}

// Sums of a gate and what it lets through, as part of the next product's activations.
static void put_gated(const Strip& gate, const Strip& up, int64_t rows, const Operand& to) {
  int64_t first = gate.block * 16, blocks = std::min<int64_t>(2, to.columns / 16 - gate.block);
  for (int64_t m = 0; m < rows; m++)
    for (int64_t i = 0; i < blocks * 16; i += 16) {
      Lanes::F a = with_bias(*gate.weight, first + i, Lanes::load(gate.sums + m * 32 + i));
      Lanes::F b = with_bias(*up.weight, first + i, Lanes::load(up.sums + m * 32 + i));
      Lanes::store_bf16(tile_lanes(to, m, first + i), gated(a, b));
    }
}

static void gated_chunk(const Weight& gate, const Weight& up, int64_t first, int64_t last,
                        const Operand& x, int64_t rows, ChunkMemory& memory, const Operand& to) {
  Strip strips[kStrips];
  const Weight* weights[] = {&gate, &up};
  int64_t count = lay_out_strips(weights, 2, first, last, rows, memory.sums, strips);
  multiply_strips(strips, count, strip_behind(gate, last), x, rows, memory);
  for (int64_t i = 0; i < count; i += 2) put_gated(strips[i], strips[i + 1], rows, to);
  if (last < block_count(gate)) return;
  for (int64_t m = 0; m < rows; m++)
    for (int64_t i = to.columns; i < to.stride; i += 16)
      Lanes::store_bf16(tile_lanes(to, m, i), Lanes::zero());
}
