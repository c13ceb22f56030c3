// A token's row of the embedding, of any kind, as float32.

static void embed_packed(const Weight& w, int64_t token, float* x) {
  int64_t block = token / 16, lane = token % 16;
  int64_t groups = (w.columns + w.group - 1) / w.group;
  const uint8_t* codes = (const uint8_t*)w.codes + block * block_bytes(w) + lane * 4;
  const uint16_t* scales = w.scales + block * groups * 16 + lane;
  for (int64_t column = 0; column < w.columns; column++) {
    float scale = widened(scales[column / w.group * 16]);
    x[column] = float(code_at(codes, w.kind, column / 4, int(column % 4))) * scale;
  }
}

// The width of plain ones is a multiple of 16.
static void embed(const Weight& w, int64_t token, float* x) {
  if (w.kind == kInt8 || w.kind == kInt4) return embed_packed(w, token, x);
  const float* wide = (const float*)w.codes + token * w.columns;
  const uint16_t* narrow = (const uint16_t*)w.codes + token * w.columns;
  for (int64_t i = 0; i < w.columns; i += 16)
    Lanes::store(x + i, w.kind == kFloat ? Lanes::load(wide + i) : Lanes::load_bf16(narrow + i));
}
