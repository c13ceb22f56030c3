// Products by AMX: tiles of 16 rows of 64 bytes. Needs AMX-TILE, AMX-INT8 and AMX-BF16.
//
// Here: with a few rows of activations bfloat16 weights are read as they lie, as the left side of a
// tile product, with activations in panels as the right side. wide.h has the products of many.
//
// A panel is 16 rows as a tile's right side wants them: pairs of columns together, (columns / 2,
// 16, 2).

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
  ThreadMemory panels, rows, sums;
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
