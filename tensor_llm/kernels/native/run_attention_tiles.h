// Attention of consecutive tokens by AMX, where keys and values are bfloat16: scores and sums are
// tile products, with queries and weights rounded to bfloat16.

// The memory of one thread; see lay_out.
struct TileRunMemory {
  // (kMostQueries, head_size)
  uint16_t* queries;
  float* out;
  // panels of 16 keys, and of 16 channels of all values of a stretch
  uint16_t *keys, *values;
  // (kMostQueries, kStretch)
  float* scores;
  uint16_t* weights;
  // (kMostQueries) each
  float *largest, *total, *former;
  // a row of zeros, for positions that are not there
  uint16_t* nothing;

  static int64_t floats(int64_t head_size) {
    return kMostQueries * (head_size * 3 / 2 + kStretch * 3 / 2 + 3) + kStretch * head_size +
           head_size;
  }
  TileRunMemory(float* memory, int64_t head_size) {
    out = memory;
    scores = out + kMostQueries * head_size;
    largest = scores + kMostQueries * kStretch;
    total = largest + kMostQueries;
    former = total + kMostQueries;
    queries = (uint16_t*)(former + kMostQueries);
    weights = queries + kMostQueries * head_size;
    keys = weights + kMostQueries * kStretch;
    values = keys + kStretch * head_size;
    nothing = values + kStretch * head_size;
  }
};

static bool tiles_take(int64_t head_size, int32_t cache_kind) {
  return cache_kind == 1 && head_size % 32 == 0;
}

// Where each position's keys and values of one head lie; beyond the last one nothing.
struct StretchRows {
  const uint16_t *keys[kStretch], *values[kStretch];

  StretchRows(const Past<uint16_t>& past, int64_t first, int64_t last, const uint16_t* nothing) {
    int64_t count = std::min(kStretch, last + 1 - first), s = 0;
    while (s < count) {
      Tile tile = tile_of(past.cache, past.table, first + s, count - s);
      for (int64_t i = 0; i < tile.count; i++, s++) {
        keys[s] = past.keys + tile.at + i * past.cache.token_stride;
        values[s] = past.values + tile.at + i * past.cache.token_stride;
      }
    }
    for (; s < kStretch; s++) keys[s] = values[s] = nothing;
  }
};

// Scattered as they lie, the hardware does not foresee them.
static void prefetch_rows(const uint16_t* const* rows, int64_t head_size) {
  for (int64_t s = 0; s < kStretch; s++)
    for (int64_t byte = 0; byte < head_size * 2; byte += 64)
      __builtin_prefetch((const char*)rows[s] + byte, 0, 2);
}

static void load_key_panels(const uint16_t* const* rows, int64_t head_size, uint16_t* to) {
  for (int64_t key = 0; key < kStretch; key += 16)
    for (int64_t d = 0; d < head_size; d += 32, to += 16 * 32) {
      Lanes::F pairs[16];
      const void* from[16];
      for (int i = 0; i < 16; i++) from[i] = rows[key + i] + d;
      mirror_rows(from, pairs);
      for (int i = 0; i < 16; i++) Lanes::store((float*)to + i * 16, pairs[i]);
    }
}

static void load_value_panels(const uint16_t* const* rows, int64_t head_size, uint16_t* to) {
  for (int64_t s = 0; s < kStretch; s += 2)
    for (int64_t d = 0; d < head_size; d += 16) {
      __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(rows[s] + d)));
      __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(rows[s + 1] + d)));
      __m512i both = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
      _mm512_storeu_si512(to + d * kStretch + s * 16, both);
    }
}

// Scores of 32 queries from the i-th on with a stretch.
static void score_tiles(const TileRunMemory& r, int64_t i, int64_t head_size) {
  for (int64_t key = 0; key < kStretch; key += 32) {
    const uint16_t* panel = r.keys + key * head_size;
    multiply_tiles<false>(r.queries + i * head_size, head_size, panel, panel + 16 * head_size,
                          head_size, nullptr, r.scores + i * kStretch + key, kStretch * 4);
  }
}

static void add_tiles(const TileRunMemory& r, int64_t i, int64_t head_size) {
  alignas(64) float c[32 * 32];
  for (int64_t d = 0; d < head_size; d += 32) {
    const uint16_t* panel = r.values + d * kStretch;
    multiply_tiles<false>(r.weights + i * kStretch, kStretch, panel, panel + 16 * kStretch,
                          kStretch, nullptr, c, 128);
    for (int j = 0; j < 32; j++) {
      float* out = r.out + (i + j) * head_size + d;
      Lanes::F former = Lanes::set1(r.former[i + j]);
      for (int half = 0; half < 32; half += 16)
        Lanes::store(out + half, Lanes::fma(Lanes::load(out + half), former,
                                            Lanes::load(c + j * 32 + half)));
    }
  }
}

// Scores of 16 queries from the i-th on become weights.
static void weigh_rows(const TileRunMemory& r, int64_t i) {
  const float* scores = r.scores + i * kStretch;
  Lanes::F most[16], sum[16];
  for (int j = 0; j < 16; j++) {
    most[j] = Lanes::load(scores + j * kStretch);
    for (int64_t s = 16; s < kStretch; s += 16)
      most[j] = Lanes::max(most[j], Lanes::load(scores + j * kStretch + s));
  }
  Lanes::F before = Lanes::load(r.largest + i), now = Lanes::max(before, Lanes::maxima(most));
  Lanes::store(r.largest + i, now);
  Lanes::store(r.former + i, exponential(Lanes::sub(before, now)));
  for (int j = 0; j < 16; j++) {
    Lanes::F largest = Lanes::set1(r.largest[i + j]);
    sum[j] = Lanes::zero();
    for (int64_t s = 0; s < kStretch; s += 16) {
      Lanes::F score = Lanes::load(scores + j * kStretch + s);
      Lanes::F weight = exponential(Lanes::sub(score, largest));
      Lanes::store_bf16(r.weights + (i + j) * kStretch + s, weight);
      sum[j] = Lanes::add(sum[j], weight);
    }
  }
  alignas(64) float sums[16];
  Lanes::sums(sum, sums);
  Lanes::F total = Lanes::fma(Lanes::load(r.total + i), Lanes::load(r.former + i),
                              Lanes::load(sums));
  Lanes::store(r.total + i, total);
}

// Tokens at `position` and the following ones, `group` queries each, queries in r.queries
// already scaled, zeros behind them; leaves the results in r.out.
static void attend_run_tiles(const TileRunMemory& r, const Past<uint16_t>& past, int64_t position,
                             int64_t tokens, int64_t group, int64_t head_size, int64_t window) {
  int64_t queries = tokens * group, last = position + tokens - 1;
  std::fill(r.largest, r.largest + kMostQueries, -1e30f);
  std::memset(r.total, 0, sizeof(float) * kMostQueries);
  std::memset(r.out, 0, sizeof(float) * kMostQueries * head_size);
  std::memset(r.weights, 0, 2 * kMostQueries * kStretch);
  std::memset(r.nothing, 0, 2 * head_size);
  TileSetting setting;
  int64_t first = window ? std::max<int64_t>(0, position + 1 - window) : 0;
  for (int64_t s = first; s <= last; s += kStretch) {
    StretchRows rows(past, s, last, r.nothing);
    prefetch_rows(rows.values, head_size);
    load_key_panels(rows.keys, head_size, r.keys);
    settle(r.keys);
    for (int64_t i = 0; i < queries; i += 32) score_tiles(r, i, head_size);
    for (int64_t i = 0; i < queries; i++)
      hide(r.scores + i * kStretch, s, kStretch, position + i / group, window);
    for (int64_t i = 0; i < queries; i += 16) weigh_rows(r, i);
    load_value_panels(rows.values, head_size, r.values);
    if (s + kStretch <= last)
      prefetch_rows(StretchRows(past, s + kStretch, last, r.nothing).keys, head_size);
    settle(r.values);
    for (int64_t i = 0; i < queries; i += 32) add_tiles(r, i, head_size);
  }
}
