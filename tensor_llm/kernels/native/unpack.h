// Packed weights back to rows of bfloat16, for products with many rows of activations.

INLINE int code_at(const uint8_t* codes, int32_t kind, int64_t quad, int lane) {
  if (kind == kInt8) return int(codes[quad * 64 + lane]) - 128;
  uint8_t both = codes[quad / 2 * 64 + lane];
  return int(quad % 2 ? both >> 4 : both & 15) - 8;
}

// 4 columns of 16 rows, whose codes lie side by side.
INLINE void unpack_quad(const uint8_t* codes, int32_t kind, int64_t quad, const float* scales,
                        uint16_t* out) {
  float lanes[64];
  for (int i = 0; i < 64; i++) lanes[i] = float(code_at(codes, kind, quad, i)) * scales[i / 4];
  for (int i = 0; i < 64; i += 16) Lanes::store_bf16(out + i, Lanes::load(lanes + i));
}

static void unpack_block(const Weight& w, int64_t block, uint16_t* out) {
  const uint8_t* codes = (const uint8_t*)w.codes + block * block_bytes(w);
  int64_t groups = (w.columns + w.group - 1) / w.group;
  int64_t rows = std::min<int64_t>(16, w.rows - block * 16);
  for (int64_t column = 0; column < w.columns; column += 4) {
    float scales[16];
    uint16_t lanes[64];
    int64_t group = column / w.group, count = std::min<int64_t>(4, w.columns - column);
    Lanes::store(scales, Lanes::load_bf16(w.scales + (block * groups + group) * 16));
    unpack_quad(codes, w.kind, column / 4, scales, lanes);
    for (int64_t r = 0; r < rows; r++)
      std::memcpy(out + (block * 16 + r) * w.columns + column, lanes + r * 4, size_t(count) * 2);
  }
}
