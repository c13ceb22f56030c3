// Attention of consecutive tokens of one sequence, as in a prompt: up to kMostQueries queries of
// one key head share each tile of keys and values, turned so that a tile's positions lie in
// lanes.

static constexpr int64_t kMostQueries = kHasTiles ? 128 : 32;
// positions of one step of the softmax
static constexpr int64_t kTile = 32;

// Rows [first, first + count) are consecutive tokens of one sequence.
struct Run {
  int64_t first, count;
  // the first of the chunks of work it makes
  int64_t chunk;
  // of a run of one row: pieces of its past, and how many chunks share the heads of each
  int64_t spans, parts;
};

// The memory of one thread; see lay_out.
struct RunMemory {
  // (kMostQueries, head_size)
  float *queries, *out;
  // (head_size, kTile) and (kTile, head_size)
  float *keys, *values;
  // (kMostQueries, kTile)
  float* scores;
  // (kMostQueries) each
  float *largest, *total, *former;

  static int64_t floats(int64_t head_size) {
    return (2 * kMostQueries + 2 * kTile) * head_size + kMostQueries * (kTile + 3);
  }
  RunMemory(float* memory, int64_t head_size) {
    queries = memory;
    out = queries + kMostQueries * head_size;
    keys = out + kMostQueries * head_size;
    values = keys + kTile * head_size;
    scores = values + kTile * head_size;
    largest = scores + kMostQueries * kTile;
    total = largest + kMostQueries;
    former = total + kMostQueries;
  }
};

template <class T>
static void load_tile(const RunMemory& r, const T* keys, const T* values, int64_t stride,
                      int64_t count, int64_t head_size) {
  alignas(64) float lanes[16];
  for (int64_t s = 0; s < count; s++)
    for (int64_t d = 0; d < head_size; d += 16) {
      Lanes::store(r.values + s * head_size + d, load_cached(values + s * stride + d));
      Lanes::store(lanes, load_cached(keys + s * stride + d));
      for (int i = 0; i < 16; i++) r.keys[(d + i) * kTile + s] = lanes[i];
    }
}

// Scores of four queries from the i-th on with a whole tile.
INLINE void score_four(const RunMemory& r, int64_t i, int64_t head_size) {
  Lanes::F low[4], high[4];
  for (int j = 0; j < 4; j++) low[j] = high[j] = Lanes::zero();
  const float* query = r.queries + i * head_size;
  for (int64_t d = 0; d < head_size; d++) {
    Lanes::F a = Lanes::load(r.keys + d * kTile), b = Lanes::load(r.keys + d * kTile + 16);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      Lanes::F one = Lanes::set1(query[j * head_size + d]);
      low[j] = Lanes::fma(one, a, low[j]);
      high[j] = Lanes::fma(one, b, high[j]);
    }
  }
  for (int j = 0; j < 4; j++) {
    Lanes::store(r.scores + (i + j) * kTile, low[j]);
    Lanes::store(r.scores + (i + j) * kTile + 16, high[j]);
  }
}

INLINE void add_four(const RunMemory& r, int64_t i, int64_t count, int64_t head_size) {
  for (int64_t d = 0; d < head_size; d += 16) {
    Lanes::F sum[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      Lanes::F out = Lanes::load(r.out + (i + j) * head_size + d);
      sum[j] = Lanes::mul(out, Lanes::set1(r.former[i + j]));
    }
    for (int64_t s = 0; s < count; s++) {
      Lanes::F value = Lanes::load(r.values + s * head_size + d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++)
        sum[j] = Lanes::fma(Lanes::set1(r.scores[(i + j) * kTile + s]), value, sum[j]);
    }
    for (int j = 0; j < 4; j++) Lanes::store(r.out + (i + j) * head_size + d, sum[j]);
  }
}

// What one head of a query at `position` may not see of positions [from, from + count).
static void hide(float* scores, int64_t from, int64_t count, int64_t position, int64_t window) {
  int64_t s = std::max<int64_t>(0, position + 1 - from);
  for (; s + 16 <= count; s += 16) Lanes::store(scores + s, Lanes::set1(-1e30f));
  for (; s < count; s++) scores[s] = -1e30f;
  int64_t before = window ? position + 1 - window - from : 0;
  for (s = 0; s < std::min(before, count); s++) scores[s] = -1e30f;
}

static void start_run(const RunMemory& r, int64_t queries, int64_t head_size) {
  for (int64_t i = 0; i < kMostQueries; i++) r.largest[i] = -1e30f, r.total[i] = r.former[i] = 0;
  std::memset(r.out, 0, size_t(kMostQueries * head_size) * 4);
  int64_t filled = queries * head_size;
  std::memset(r.queries + filled, 0, size_t(kMostQueries * head_size - filled) * 4);
  // keys beyond a tile's count must be numbers
  std::memset(r.keys, 0, size_t(kTile * head_size) * 4);
}

// Tokens at `position` and the following ones, `group` queries each, queries in r.queries
// already scaled; leaves the results in r.out.
template <class T>
static void attend_run(const RunMemory& r, const Cache& cache, const T* keys, const T* values,
                       const int64_t* table, int64_t position, int64_t tokens, int64_t group,
                       int64_t head_size, int64_t window) {
  int64_t queries = tokens * group, last = position + tokens - 1;
  start_run(r, queries, head_size);
  for (int64_t s = window ? std::max<int64_t>(0, position + 1 - window) : 0; s <= last;) {
    Tile tile = tile_of(cache, table, s, std::min(kTile, last + 1 - s));
    int64_t count = tile.count;
    load_tile(r, keys + tile.at, values + tile.at, cache.token_stride, count, head_size);
    for (int64_t i = 0; i < queries; i += 4) score_four(r, i, head_size);
    for (int64_t i = 0; i < queries; i++) {
      float* scores = r.scores + i * kTile;
      hide(scores, s, count, position + i / group, window);
      r.former[i] = weigh_tile(scores, count, &r.largest[i], &r.total[i]);
    }
    for (int64_t i = 0; i < queries; i += 4) add_four(r, i, count, head_size);
    s += count;
  }
}
