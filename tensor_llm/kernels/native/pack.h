// Float weights to packed ones, by the rules of quantization.py.

// what the largest weight becomes, as a share of the lowest code
static constexpr float kShares[] = {0.85f, 0.95f, 1.0f, 1.05f, 1.1f, 1.2f};

INLINE float nearest_bf16(float x) {
  uint16_t narrow[16];
  Lanes::store_bf16(narrow, Lanes::set1(x));
  float lanes[16];
  Lanes::store(lanes, Lanes::load_bf16(narrow));
  return std::fabs(lanes[0]) < 1e-37f ? 0 : lanes[0];
}

INLINE Lanes::F code_of(Lanes::F x, float inverse, float offset, float lowest) {
  Lanes::F code = Lanes::round(Lanes::mul(x, Lanes::set1(inverse)));
  code = Lanes::max(Lanes::add(code, Lanes::set1(offset)), Lanes::set1(lowest));
  return Lanes::min(code, Lanes::set1(2 * offset - 1));
}

INLINE float inverse_of(float scale) { return scale == 0 ? 0 : 1 / scale; }

// Squared error of a group of int4 codes.
static float error_of(const float* x, int32_t group, float scale) {
  Lanes::F total = Lanes::zero();
  float inverse = inverse_of(scale);
  for (int i = 0; i < group; i += 16) {
    Lanes::F weight = Lanes::load(x + i), code = code_of(weight, inverse, 8, 0);
    code = Lanes::mul(Lanes::sub(code, Lanes::set1(8)), Lanes::set1(scale));
    Lanes::F error = Lanes::sub(code, weight);
    total = Lanes::fma(error, error, total);
  }
  return Lanes::sum(total);
}

static float extreme_of(const float* x, int32_t group) {
  float extreme = x[0];
  for (int i = 1; i < group; i++)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  return extreme;
}

static float scale_of(const float* x, int32_t group, int32_t kind) {
  float extreme = extreme_of(x, group);
  if (kind == kInt8) return nearest_bf16(extreme / -127);
  float best = nearest_bf16(extreme / -8), least = INFINITY;
  for (float share : kShares) {
    float scale = nearest_bf16(extreme / -8 / share), error = error_of(x, group, scale);
    if (error < least) least = error, best = scale;
  }
  return best;
}

// One row of a block: its codes go to every 64th byte's four from `codes` on.
static void pack_group(const float* x, const Weight& w, float scale, uint8_t* codes) {
  bool wide = w.kind == kInt8;
  float lanes[16], offset = wide ? 128 : 8, inverse = inverse_of(scale);
  for (int i = 0; i < w.group; i += 16) {
    Lanes::store(lanes, code_of(Lanes::load(x + i), inverse, offset, wide));
    for (int j = 0; j < 16; j++) {
      int column = i + j;
      uint8_t code = uint8_t(lanes[j]);
      if (wide) codes[column / 4 * 64 + column % 4] = code;
      else if (column % 8 < 4) codes[column / 8 * 64 + column % 4] = code;
      else codes[column / 8 * 64 + column % 4] |= uint8_t(code << 4);
    }
  }
}

static void pack_block(const Weight& w, int64_t block, const float* from, uint8_t* codes,
                       uint16_t* scales) {
  int64_t groups = (w.columns + w.group - 1) / w.group;
  codes += block * block_bytes(w);
  scales += block * groups * 16;
  for (int64_t r = 0; r < 16; r++) {
    const float* row = from + (block * 16 + r) * w.columns;
    for (int64_t g = 0; g < groups; g++) {
      float x[256] = {};
      int64_t first = g * w.group, count = std::min<int64_t>(w.group, w.columns - first);
      if (block * 16 + r < w.rows) std::memcpy(x, row + first, size_t(count) * 4);
      float scale = scale_of(x, w.group, w.kind);
      uint16_t narrow[16];
      Lanes::store_bf16(narrow, Lanes::set1(scale));
      scales[g * 16 + r] = narrow[0];
      int64_t bytes = w.group * (w.kind == kInt8 ? 16 : 8);
      pack_group(x, w, scale, codes + g * bytes + r * 4);
    }
  }
}
