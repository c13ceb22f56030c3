// The exponential, the softmax's step and the way through blocks that both attentions share.

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

// Positions that lie together: within one block.
struct Tile {
  int64_t at, count;
};

INLINE Tile tile_of(const Cache& cache, const int64_t* table, int64_t position, int64_t most) {
  int64_t within = position % cache.block_tokens;
  int64_t block = table[position / cache.block_tokens];
  return {block * cache.block_stride + within * cache.token_stride,
          std::min(cache.block_tokens - within, most)};
}
