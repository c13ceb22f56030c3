// Activations as the products want them.

#ifdef NOIDLE_AMX
static constexpr bool kHasTiles = true;
#else
static constexpr bool kHasTiles = false;
#endif
// up to so many rows packed weights are multiplied as bytes
static constexpr int64_t kFewRows = 16;
// up to so many rows bfloat16 weights are read as they lie
static constexpr int64_t kDirectRows = 32;
// elements behind each row of plain operands
static constexpr int64_t kRowGap = 32;
// operands are laid out for whole tiles of rows
static constexpr int64_t kRowMultiple = 32;

enum class Form {
  // bfloat16 (rows, columns)
  kPlain,
  // bfloat16 (rows / 16, columns / 32, 16, 32): the left side of a tile product
  kTiles,
  // bfloat16 (rows / 16, columns / 2, 16, 2): the right side of a tile product
  kPanels,
  // signed bytes with a scale for each group, the group being that of the weights
  kCodes,
  // float32 (rows, columns)
  kFloats,
};

struct Operand {
  Form form;
  uint16_t* bf16;
  // the same memory
  float* floats;
  int8_t* codes;
  // (rows, groups)
  float* scales;
  // sum of each group's codes, times the offset of the weights' codes
  int32_t* offsets;
  // elements between two rows
  int64_t stride;
  int64_t columns, groups;
};

INLINE int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

static Form form_for(const Weight& w, int64_t rows) {
  if (w.kind == kFloat) return Form::kFloats;
  if (w.kind == kBf16) {
    if (!kHasTiles || rows == 1) return Form::kPlain;
    return rows <= kDirectRows ? Form::kPanels : Form::kTiles;
  }
  return kHasTiles && rows > kFewRows ? Form::kTiles : Form::kCodes;
}

static size_t operand_bytes(int64_t rows, int64_t columns) {
  size_t width = size_t(round_up(columns, 256));
  // as float32; codes take less, for groups are of 32 columns or more
  return size_t(round_up(rows, kRowMultiple)) * width * 4;
}

// `memory` is 64-byte aligned and as large as operand_bytes says.
static Operand lay_out_operand(char* memory, int64_t rows, const Weight& like) {
  Operand x;
  x.form = form_for(like, rows);
  x.stride = round_up(like.columns, 256);
  // rows a power of two apart would fall on each other in the caches
  if (x.form == Form::kPlain) x.stride += kRowGap;
  x.columns = like.columns;
  x.groups = like.group ? (like.columns + like.group - 1) / like.group : 0;
  rows = round_up(rows, kRowMultiple);
  x.bf16 = (uint16_t*)memory;
  x.floats = (float*)memory;
  x.codes = (int8_t*)(memory + rows * x.stride * 2);
  x.scales = (float*)(memory + rows * x.stride * 3);
  x.offsets = (int32_t*)(x.scales + rows * (x.stride / 32));
  return x;
}

// The largest of a group becomes 127; a group of zeros gets the scale 0.
static void quantize_group(const float* x, int32_t group, int32_t offset, int8_t* codes,
                           float* scale, int32_t* sum) {
  Lanes::F most = Lanes::zero();
  for (int i = 0; i < group; i += 16) most = Lanes::max(most, Lanes::abs(Lanes::load(x + i)));
  float largest = Lanes::largest(most);
  float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  // of numbers so small that their inverse overflows
  if (!(inverse < 1e38f)) inverse = 0.0f;
  Lanes::F total = Lanes::zero();
  for (int i = 0; i < group; i += 16) {
    Lanes::F code = Lanes::round(Lanes::mul(Lanes::load(x + i), Lanes::set1(inverse)));
    Lanes::store_int8(codes + i, code);
    total = Lanes::add(total, code);
  }
  *scale = inverse > 0 ? largest / 127.0f : 0.0f;
  *sum = int32_t(Lanes::sum(total)) * offset;
}

static int32_t code_offset(int32_t kind) {
  return kind == kInt4 ? 8 : kind == kInt8 ? Lanes::kOffset8 : 0;
}

static void fill_codes(const Operand& to, int64_t row, const float* x, const Weight& like) {
  float padded[256];
  for (int64_t g = 0; g < to.groups; g++) {
    int64_t first = g * like.group, left = std::min<int64_t>(like.columns - first, like.group);
    const float* source = x + first;
    if (left < like.group) {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, source, size_t(left) * 4);
      source = padded;
    }
    int64_t at = row * to.groups + g;
    quantize_group(source, like.group, code_offset(like.kind), to.codes + row * to.stride + first,
                   to.scales + at, to.offsets + at);
  }
}

// columns of a panel that one thread fills at a time
static constexpr int64_t kSlice = 128;

static void fill_floats(float* to, int64_t stride, const float* x, int64_t columns) {
  std::memcpy(to, x, size_t(columns) * 4);
  std::memset(to + columns, 0, size_t(stride - columns) * 4);
}

static void fill_bf16(uint16_t* to, int64_t stride, const float* x, int64_t columns) {
  for (int64_t i = 0; i < columns; i += 16) Lanes::store_bf16(to + i, Lanes::load(x + i));
  int64_t filled = round_up(columns, 16);
  std::memset(to + filled, 0, size_t(stride - filled) * 2);
}

// Where 16 columns of a row lie in tiles.
INLINE uint16_t* tile_lanes(const Operand& to, int64_t row, int64_t column) {
  return to.bf16 + row / 16 * 16 * to.stride + column / 32 * 512 + row % 16 * 32 + column % 32;
}

static void fill_tiles(const Operand& to, int64_t row, const float* x, int64_t columns) {
  for (int64_t i = 0; i < to.stride; i += 16)
    Lanes::store_bf16(tile_lanes(to, row, i), i < columns ? Lanes::load(x + i) : Lanes::zero());
}

// Fills one row where rows lie apart; x is padded to 16 with zeros.
static void fill_row(const Operand& to, int64_t row, const float* x, const Weight& like) {
  if (to.form == Form::kCodes) fill_codes(to, row, x, like);
  else if (to.form == Form::kTiles) fill_tiles(to, row, x, like.columns);
  else if (to.form == Form::kFloats)
    fill_floats(to.floats + row * to.stride, to.stride, x, like.columns);
  else fill_bf16(to.bf16 + row * to.stride, to.stride, x, like.columns);
}

// Some columns of all rows: threads that took rows would write to the same cache lines. `x` holds
// rows of `pitch` floats, a multiple of 16.
static void fill_panels(const Operand& to, int64_t rows, const float* x, int64_t pitch,
                        int64_t first, int64_t last) {
  uint16_t lanes[16];
  for (int64_t row = 0; row < rows; row++) {
    uint16_t* pair = to.bf16 + row / 16 * 16 * to.stride + row % 16 * 2 + first * 16;
    for (int64_t i = first; i < last; i += 16) {
      Lanes::store_bf16(lanes, i < pitch ? Lanes::load(x + row * pitch + i) : Lanes::zero());
      for (int j = 0; j < 16; j += 2, pair += 32) std::memcpy(pair, lanes + j, 4);
    }
  }
}

// One phase, or part of one: fills all rows for products with weights like `like`. `x` holds rows
// of `pitch` floats, the columns padded to 16 with zeros.
static void fill_operand(Worker& worker, const Operand& to, const float* x, int64_t pitch,
                         int64_t rows, const Weight& like) {
  if (to.form == Form::kPanels) {
    int64_t columns = round_up(like.columns, 32);
    worker.each((columns + kSlice - 1) / kSlice, [&](int64_t slice) {
      int64_t first = slice * kSlice;
      fill_panels(to, rows, x, pitch, first, std::min(first + kSlice, columns));
    });
    return;
  }
  worker.each(rows, [&](int64_t row) { fill_row(to, row, x + row * pitch, like); });
}
