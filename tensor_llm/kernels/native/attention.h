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
  for (int64_t s = count; s < kTile; s++) scores[s] = -1e30f;
  Lanes::F most = Lanes::set1(*largest);
  for (int64_t s = 0; s < kTile; s += 16) most = Lanes::max(most, Lanes::load(scores + s));
  float now = Lanes::largest(most);
  Lanes::F sum = Lanes::zero();
  for (int64_t s = 0; s < kTile; s += 16) {
    Lanes::F weight =
        exponential(Lanes::sub(Lanes::load(scores + s), Lanes::set1(now)));
    Lanes::store(scores + s, weight);
  }
  for (int64_t s = count; s < kTile; s++) scores[s] = 0;
  for (int64_t s = 0; s < kTile; s += 16) sum = Lanes::add(sum, Lanes::load(scores + s));
  float former = std::exp(*largest - now);
  *largest = now;
  *total = *total * former + Lanes::sum(sum);
  return former;
}

template <class T>
static void add_values(const HeadGroup& h, int64_t g, const T* values, int64_t stride,
                       int64_t count, float former) {
  const float* weights = h.scores + g * kTile;
  for (int64_t d = 0; d < h.head_size; d += 16) {
    float* out = h.out + g * h.head_size + d;
    Lanes::F sum = Lanes::mul(Lanes::load(out), Lanes::set1(former));
    for (int64_t s = 0; s < count; s++)
      sum = Lanes::fma(Lanes::set1(weights[s]), load_cached(values + s * stride + d), sum);
    Lanes::store(out, sum);
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
  for (int64_t s = first; s <= last;) {
    int64_t within = s % cache.block_tokens;
    int64_t count = std::min({kTile, cache.block_tokens - within, last + 1 - s});
    int64_t at = table[s / cache.block_tokens] * cache.block_stride + within * cache.token_stride;
    score_tile(h, keys + at, cache.token_stride, count);
    for (int64_t g = 0; g < h.heads; g++) {
      float former = weigh_tile(h.scores + g * kTile, count, &largest[g], &total[g]);
      add_values(h, g, values + at, cache.token_stride, count, former);
    }
    s += count;
  }
  for (int64_t g = 0; g < h.heads; g++)
    for (int64_t d = 0; d < h.head_size; d += 16) {
      float* out = h.out + g * h.head_size + d;
      Lanes::store(out, Lanes::mul(Lanes::load(out), Lanes::set1(1 / total[g])));
    }
}
