// Products by AMX: tiles of 16 rows of 64 bytes. Needs AMX-TILE, AMX-INT8 and AMX-BF16.
//
// With a few rows of activations bfloat16 weights are read as they lie, as the left side of a
// tile product, with activations in panels as the right side. With many, and for packed weights,
// a chunk of weights becomes panels, once for all rows of activations, which are the left side
// then.
//
// A panel is 16 rows as a tile's right side wants them: pairs of columns together, (columns / 2,
// 16, 2).

// of a chunk's weights as bfloat16: shares the second-level cache with activations
static constexpr int64_t kChunkPanelBytes = 768 * 1024;

// Memory of one thread's own, kept from call to call.
class ThreadMemory {
 public:
  ~ThreadMemory() { std::free(memory_); }
  char* at_least(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = round_up(bytes, 4096);
      memory_ = (char*)std::aligned_alloc(4096, size_t(size_));
    }
    return memory_;
  }

 private:
  char* memory_ = nullptr;
  int64_t size_ = 0;
};

// Compilers believe that tile instructions read no memory; what was written must be there.
INLINE void settle(const void* written) { asm volatile("" : : "r"(written) : "memory"); }

struct ChunkMemory {
  ThreadMemory panels, rows;
};

// Sets all tiles to 16 rows of 64 bytes, and back to what they were: torch's library uses the
// same threads and does not expect its setting to change.
class TileSetting {
 public:
  TileSetting() {
    _tile_storeconfig(former_);
    settle(former_);
    alignas(64) uint8_t mine[64] = {1};
    for (int tile = 0; tile < 8; tile++) {
      mine[16 + 2 * tile] = 64;
      mine[48 + tile] = 16;
    }
    settle(mine);
    _tile_loadconfig(mine);
  }
  ~TileSetting() { _tile_loadconfig(former_); }

 private:
  alignas(64) uint8_t former_[64];
};

INLINE void prefetch_kilobyte(const char* p) {
#pragma GCC unroll 16
  for (int line = 0; line < 16; line++) __builtin_prefetch(p + line * 64, 0, 2);
}

// c (32, 32) = left (32 rows) times two panels, over `columns`, a multiple of 32; with `one` only
// the first panel, into c's first 16 columns. c's rows lie `c_pitch` bytes apart. `next` is read
// ahead, a kilobyte a step and left tile; may be nullptr.
template <bool one>
INLINE void multiply_tiles(const uint16_t* left, int64_t left_stride, const uint16_t* panel,
                           const uint16_t* other, int64_t columns, const char* next, float* c,
                           int64_t c_pitch = 128) {
  const uint16_t* lower = left + 16 * left_stride;
  int64_t pitch = left_stride * 2;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < columns; k += 32) {
    _tile_loadd(4, left + k, pitch);
    _tile_loadd(5, lower + k, pitch);
    _tile_loadd(6, panel + k * 16, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (next) {
      prefetch_kilobyte(next + k * 64);
      prefetch_kilobyte(next + k * 64 + 1024);
    }
    if (one) continue;
    _tile_loadd(7, other + k * 16, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  float* below = c + 4 * c_pitch;
  _tile_stored(0, c, c_pitch);
  _tile_stored(2, below, c_pitch);
  if (one) return;
  _tile_stored(1, c + 16, c_pitch);
  _tile_stored(3, below + 16, c_pitch);
}

// 16 x 16 words of 32 bits, mirrored.
INLINE void mirror_rows(const void* const* from, Lanes::F* to) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(from[i]);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
    b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
    b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    to[i] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88);
    to[i + 4] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88);
    to[i + 8] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd);
    to[i + 12] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd);
  }
}

// The same of rows `pitch` bytes apart.
INLINE void mirror(const void* from, int64_t pitch, Lanes::F* to) {
  const void* rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) rows[i] = (const char*)from + i * pitch;
  mirror_rows(rows, to);
}

// 4 columns of 16 rows, whose codes lie side by side, as bfloat16: two rows of a panel.
INLINE void unpack_to_panel(__m512i codes, __m512 scale, __m512 shift, uint16_t* to) {
  const __m512i byte = _mm512_set1_epi32(255), half = _mm512_set1_epi32(0x8000);
  __m512i bits[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    __m512i code = _mm512_and_si512(_mm512_srli_epi32(codes, 8 * j), byte);
    __m512 weight = _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), scale, shift);
    bits[j] = _mm512_add_epi32(_mm512_castps_si512(weight), half);
  }
  // the second of a pair keeps its upper half, the first goes below it
  const __mmask32 upper = 0xaaaaaaaa;
  for (int j = 0; j < 4; j += 2) {
    __m512i low = _mm512_srli_epi32(bits[j], 16);
    _mm512_storeu_si512(to + j * 16, _mm512_mask_mov_epi16(low, upper, bits[j + 1]));
  }
}

// One block of packed weights as a panel (padded columns / 2, 16, 2).
static void unpack_panel(const Weight& w, int64_t block, uint16_t* to) {
  const uint8_t* codes = (const uint8_t*)w.codes + block * block_bytes(w);
  int64_t groups = (w.columns + w.group - 1) / w.group;
  const uint16_t* scales = w.scales + block * groups * 16;
  __m512 offset = _mm512_set1_ps(w.kind == kInt8 ? -128.0f : -8.0f);
  for (int64_t g = 0; g < groups; g++) {
    __m512 scale = Lanes::load_bf16(scales + g * 16), shift = _mm512_mul_ps(scale, offset);
    for (int i = 0; i < w.group; i += w.kind == kInt8 ? 4 : 8) {
      Lanes::Bytes both = Lanes::load_bytes(codes);
      prefetch(codes);
      codes += 64;
      if (w.kind == kInt8) {
        unpack_to_panel(both, scale, shift, to);
        to += 64;
        continue;
      }
      unpack_to_panel(Lanes::low_nibbles(both), scale, shift, to);
      unpack_to_panel(Lanes::high_nibbles(both), scale, shift, to + 64);
      to += 128;
    }
  }
}

// Writes c (32 weight rows, 32 activation rows) behind row m of two blocks' results.
static void put_mirrored(const Product& p, int64_t block, int64_t m, int64_t rows,
                         const float* c) {
  for (int64_t down = 0; down < 2 && (block + down) * 16 < p.weight->rows; down++)
    for (int64_t right = 0; right < 2 && right * 16 < rows; right++) {
      Lanes::F lanes[16];
      mirror(c + down * 16 * 32 + right * 16, 128, lanes);
      int64_t count = std::min<int64_t>(16, rows - right * 16);
      for (int64_t i = 0; i < count; i++) put(p, block + down, m + right * 16 + i, lanes[i]);
    }
}

// Two blocks of rows of bfloat16 where they lie, or a copy with zeros behind the last row and
// column: a tile must not read beyond the weight.
struct LeftSide {
  const uint16_t* rows;
  int64_t stride;
};

static LeftSide left_side(const Weight& w, int64_t block, ThreadMemory& memory) {
  const uint16_t* from = (const uint16_t*)w.codes + block * 16 * w.columns;
  int64_t rows = std::min<int64_t>(32, w.rows - block * 16), width = round_up(w.columns, 32);
  bool inside = w.columns % 32 ? block * 16 + 32 < w.rows : rows == 32;
  if (inside) return {from, w.columns};
  uint16_t* copy = (uint16_t*)memory.at_least(32 * width * 2);
  std::memset(copy, 0, size_t(32 * width * 2));
  for (int64_t r = 0; r < rows; r++)
    std::memcpy(copy + r * width, from + r * w.columns, size_t(w.columns) * 2);
  settle(copy);
  return {copy, width};
}

// Two blocks of bfloat16 weights as panels, `size` apart.
static void turn_panels(const Weight& w, int64_t block, ThreadMemory& memory, uint16_t* to,
                        int64_t size) {
  LeftSide left = left_side(w, block, memory);
  for (int64_t down = 0; down < 2 && (block + down) * 16 < w.rows; down++)
    for (int64_t k = 0; k < round_up(w.columns, 32); k += 32) {
      Lanes::F pairs[16];
      mirror(left.rows + down * 16 * left.stride + k, left.stride * 2, pairs);
      for (int i = 0; i < 16; i++)
        Lanes::store((float*)(to + down * size + k * 16) + i * 16, pairs[i]);
    }
}

static void make_panels(const Weight& w, int64_t first, int64_t last, ChunkMemory& memory,
                        uint16_t* panels, int64_t size) {
  for (int64_t block = first; block < last; block++) {
    uint16_t* to = panels + (block - first) * size;
    if (w.kind != kBf16) unpack_panel(w, block, to);
    else if ((block - first) % 2 == 0) turn_panels(w, block, memory.rows, to, size);
  }
  settle(panels);
}

// Many rows of activations.
static void wide_chunk(const Product& p, int64_t first, int64_t last, const Operand& x,
                         int64_t rows, ChunkMemory& memory) {
  const Weight& w = *p.weight;
  int64_t columns = round_up(w.columns, w.kind == kBf16 ? 32 : w.group), size = columns * 16;
  uint16_t* panels = (uint16_t*)memory.panels.at_least((last - first) * size * 2);
  make_panels(w, first, last, memory, panels, size);
  alignas(64) float c[32 * 32];
  for (int64_t m = 0; m < rows; m += 32) {
    const uint16_t* left = x.bf16 + m * x.stride;
    for (int64_t block = first; block < last; block += 2) {
      const uint16_t* panel = panels + (block - first) * size;
      bool one = block + 1 == last;
      if (one) multiply_tiles<true>(left, x.stride, panel, panel, columns, nullptr, c);
      else multiply_tiles<false>(left, x.stride, panel, panel + size, columns, nullptr, c);
      for (int64_t i = 0; i < std::min<int64_t>(32, rows - m); i++) {
        put(p, block, m + i, Lanes::load(c + i * 32));
        if (!one) put(p, block + 1, m + i, Lanes::load(c + i * 32 + 16));
      }
    }
  }
}

// A few rows of activations, in panels, against bfloat16 weights.
static void direct_chunk(const Product& p, int64_t first, int64_t last, const Operand& x,
                       int64_t rows, ChunkMemory& memory) {
  const Weight& w = *p.weight;
  int64_t columns = round_up(w.columns, 32), size = x.stride * 16;
  alignas(64) float c[32 * 32];
  for (int64_t m = 0; m < rows; m += 32) {
    const uint16_t* panel = x.bf16 + m * x.stride;
    for (int64_t block = first; block < last; block += 2) {
      LeftSide left = left_side(w, block, memory.rows);
      // memory is read in the first pass only
      const char* next = m ? nullptr : (const char*)(left.rows + 32 * w.columns);
      if (rows - m <= 16)
        multiply_tiles<true>(left.rows, left.stride, panel, panel, columns, next, c);
      else
        multiply_tiles<false>(left.rows, left.stride, panel, panel + size, columns, next, c);
      put_mirrored(p, block, m, std::min<int64_t>(32, rows - m), c);
    }
  }
}
