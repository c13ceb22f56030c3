// Attention of single tokens over keys and values in blocks, by the online softmax (Milakov and
// Gimelshein 2018): one pass over the past, whatever its length.

static constexpr int64_t kTile = 32;

INLINE Lanes::F exponential(Lanes::F x) {
  // e^x = 2^n e^r with |r| <= ln 2 / 2; the series to r^6 leaves 2e-7
  x = Lanes::max(x, Lanes::set1(-87.0f));
  x = Lanes::min(x, Lanes::set1(88.0f));
  Lanes::F n = Lanes::round(Lanes::mul(x, Lanes::set1(1.44269504f)));
  Lanes::F r = Lanes::fma(n, Lanes::set1(-0.693359375f), x);
  r = Lanes::fma(n, Lanes::set1(2.12194440e-4f), r);
  Lanes::F sum = Lanes::set1(1.0f / 720);
  for (float term : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    sum = Lanes::fma(sum, r, Lanes::set1(term));
  return Lanes::times_power_of_2(sum, n);
}

INLINE Lanes::F load_cached(const float* p) { return Lanes::load(p); }
INLINE Lanes::F load_cached(const uint16_t* p) { return Lanes::load_bf16(p); }
INLINE void store_cached(float* p, Lanes::F x) { Lanes::store(p, x); }
INLINE void store_cached(uint16_t* p, Lanes::F x) { Lanes::store_bf16(p, x); }

// The query heads that share one key head, and what they have summed so far.
struct HeadGroup {
  const float* queries;
  float* out;
  // (heads, kTile)
  float* scores;
  int64_t heads, head_size;
  float scale;
};

template <class T>
static void score_tile(const HeadGroup& h, const T* keys, int64_t stride, int64_t count) {
  for (int64_t s = 0; s < count; s++) {
    const T* key = keys + s * stride;
    for (int64_t g = 0; g < h.heads; g++) {
      const float* query = h.queries + g * h.head_size;
      Lanes::F sum = Lanes::zero();
      for (int64_t d = 0; d < h.head_size; d += 16)
        sum = Lanes::fma(Lanes::load(query + d), load_cached(key + d), sum);
      h.scores[g * kTile + s] = Lanes::sum(sum) * h.scale;
    }
  }
}

// Scores of one head become weights; returns what former sums must be multiplied with.
static float weigh_tile(float* scores, int64_t count, float* largest, float* total) {
  int64_t whole = round_up(count, 16);
  for (int64_t s = count; s < whole; s++) scores[s] = -1e30f;
  Lanes::F most = Lanes::set1(*largest);
  for (int64_t s = 0; s < whole; s += 16) most = Lanes::max(most, Lanes::load(scores + s));
  float now = Lanes::largest(most);
  Lanes::F sum = Lanes::zero();
  for (int64_t s = 0; s < whole; s += 16) {
    // what lies beyond the count has the weight e^-87: nothing
    Lanes::F weight = exponential(Lanes::sub(Lanes::load(scores + s), Lanes::set1(now)));
    Lanes::store(scores + s, weight);
    sum = Lanes::add(sum, weight);
  }
  float former = now == *largest ? 1 : std::exp(*largest - now);
  *largest = now;
  *total = *total * former + Lanes::sum(sum);
  return former;
}

// W times 16 elements of one head; sums of their own, so that none waits for another.
template <int W, class T>
INLINE void add_columns(const float* weights, const T* values, int64_t stride, int64_t count,
                        float former, float* out) {
  Lanes::F sum[W];
#pragma GCC unroll 4
  for (int i = 0; i < W; i++)
    sum[i] = Lanes::mul(Lanes::load(out + i * 16), Lanes::set1(former));
  for (int64_t s = 0; s < count; s++)
#pragma GCC unroll 4
    for (int i = 0; i < W; i++) {
      Lanes::F value = load_cached(values + s * stride + i * 16);
      sum[i] = Lanes::fma(Lanes::set1(weights[s]), value, sum[i]);
    }
#pragma GCC unroll 4
  for (int i = 0; i < W; i++) Lanes::store(out + i * 16, sum[i]);
}

template <class T>
static void add_values(const HeadGroup& h, int64_t g, const T* values, int64_t stride,
                       int64_t count, float former) {
  const float* weights = h.scores + g * kTile;
  float* out = h.out + g * h.head_size;
  int64_t d = 0;
  for (; d + 64 <= h.head_size; d += 64)
    add_columns<4>(weights, values + d, stride, count, former, out + d);
  for (; d < h.head_size; d += 16)
    add_columns<1>(weights, values + d, stride, count, former, out + d);
}

// The positions one step of the online softmax takes: within one block.
struct Tile {
  int64_t at, count;
};

INLINE Tile tile_of(const Cache& cache, const int64_t* table, int64_t position, int64_t last) {
  int64_t within = position % cache.block_tokens;
  int64_t block = table[position / cache.block_tokens];
  return {block * cache.block_stride + within * cache.token_stride,
          std::min({kTile, cache.block_tokens - within, last + 1 - position})};
}

// One head's part of a tile: too scattered for the hardware to foresee.
template <class T>
INLINE void prefetch_tile(const T* from, const Cache& cache, Tile tile, int64_t head_size) {
  for (int64_t s = 0; s < tile.count; s++) {
    const char* token = (const char*)(from + tile.at + s * cache.token_stride);
    for (int64_t byte = 0; byte < head_size * int64_t(sizeof(T)); byte += 64)
      __builtin_prefetch(token + byte, 0, 3);
  }
}

// One row's token against the positions [first, last] of its sequence.
template <class T>
static void attend(const HeadGroup& h, const Cache& cache, const T* keys, const T* values,
                   const int64_t* table, int64_t first, int64_t last, float* largest,
                   float* total) {
  std::fill(largest, largest + h.heads, -1e30f);
  std::fill(total, total + h.heads, 0.0f);
  std::fill(h.out, h.out + h.heads * h.head_size, 0.0f);
  Tile tile = tile_of(cache, table, first, last);
  for (int64_t s = first; s <= last;) {
    Tile now = tile;
    s += now.count;
    if (s <= last) {
      tile = tile_of(cache, table, s, last);
      prefetch_tile(keys, cache, tile, h.head_size);
      prefetch_tile(values, cache, tile, h.head_size);
    }
    score_tile(h, keys + now.at, cache.token_stride, now.count);
    for (int64_t g = 0; g < h.heads; g++) {
      float former = weigh_tile(h.scores + g * kTile, now.count, &largest[g], &total[g]);
      add_values(h, g, values + now.at, cache.token_stride, now.count, former);
    }
  }
  for (int64_t g = 0; g < h.heads; g++)
    for (int64_t d = 0; d < h.head_size; d += 16) {
      float* out = h.out + g * h.head_size + d;
      Lanes::store(out, Lanes::mul(Lanes::load(out), Lanes::set1(1 / total[g])));
    }
}
