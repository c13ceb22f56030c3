// Attention of single tokens over keys and values in blocks, by the online softmax (Milakov and
// Gimelshein 2018). The past is read in the order it lies in memory, all heads of a token
// together; a long one is cut into spans whose results are merged (Flash-Decoding, Dao et al.
// 2023). Where the cuts lie depends on the row's position alone, so a row's result does not
// depend on threads or other rows.

// positions of one step of the softmax
static constexpr int64_t kStretch = 128;
// of one span at least, and spans of one row at most
static constexpr int64_t kSpan = 512, kMostSpans = 16;

INLINE int64_t span_size(int64_t positions) {
  return round_up(std::max(kSpan, (positions + kMostSpans - 1) / kMostSpans), kStretch);
}
INLINE int64_t span_count(int64_t positions) {
  return (positions + span_size(positions) - 1) / span_size(positions);
}

// Some heads' keys and values of one layer and one sequence.
template <class T>
struct Past {
  const T *keys, *values;
  const Cache& cache;
  const int64_t* table;
};

// Queries of some key heads, `group` each, and what they have summed so far.
struct HeadGroups {
  const float* queries;
  // (key heads, group, head_size)
  float* out;
  // (key heads, group)
  float *largest, *total;
  // (group, kStretch), of the thread
  float* scores;
  int64_t kv_heads, group, head_size;
};

static constexpr int64_t group_floats(int64_t group) { return group * kStretch + 16; }

// Asks for the keys and values of later positions, some at a time: between blocks the hardware
// cannot foresee them.
template <class T>
class Ahead {
 public:
  Ahead(const Past<T>& past, int64_t first, int64_t last, int64_t bytes, int64_t calls)
      : past_(past), next_(first), last_(last), bytes_(bytes),
        each_((kStretch + calls - 1) / calls) {}

  void read() {
    int64_t end = std::min(last_, next_ + each_ - 1);
    for (; next_ <= end; next_++) {
      int64_t at = tile_of(past_.cache, past_.table, next_, 1).at;
      for (int64_t byte = 0; byte < bytes_; byte += 64) {
        __builtin_prefetch((const char*)(past_.keys + at) + byte, 0, 2);
        __builtin_prefetch((const char*)(past_.values + at) + byte, 0, 2);
      }
    }
  }

 private:
  const Past<T>& past_;
  int64_t next_, last_, bytes_, each_;
};

// Scores of G heads that share `keys`, several keys at a time.
template <int G, class T>
static void score_keys(const float* queries, const T* keys, int64_t stride, int64_t count,
                       int64_t head_size, float* scores, Ahead<T>& ahead) {
  constexpr int kKeys = Lanes::kSums / G;
  float sums[Lanes::kSums];
  for (int64_t s = 0; s < count; s += kKeys) {
    ahead.read();
    Lanes::F acc[Lanes::kSums];
    const T* key[kKeys];
    for (int k = 0; k < kKeys; k++) key[k] = keys + std::min(s + k, count - 1) * stride;
    for (int i = 0; i < Lanes::kSums; i++) acc[i] = Lanes::zero();
    for (int64_t d = 0; d < head_size; d += 16) {
      Lanes::F query[G];
      for (int g = 0; g < G; g++) query[g] = Lanes::load(queries + g * head_size + d);
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; k++) {
        Lanes::F x = load_cached(key[k] + d);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++)
          acc[g * kKeys + k] = Lanes::fma(query[g], x, acc[g * kKeys + k]);
      }
    }
    Lanes::sums(acc, sums);
    for (int g = 0; g < G; g++)
      std::memcpy(scores + g * kStretch + s, sums + g * kKeys, sizeof(float) * kKeys);
  }
}

// W times 16 elements of G heads that share `values`; sums of their own, so that none waits for
// another.
template <int G, int W, class T>
INLINE void add_columns(const float* weights, const T* values, int64_t stride, int64_t count,
                        const float* former, int64_t head_size, float* out) {
  Lanes::F sum[G][W];
  for (int g = 0; g < G; g++)
    for (int i = 0; i < W; i++)
      sum[g][i] = Lanes::mul(Lanes::load(out + g * head_size + i * 16), Lanes::set1(former[g]));
  for (int64_t s = 0; s < count; s++)
#pragma GCC unroll 4
    for (int i = 0; i < W; i++) {
      Lanes::F value = load_cached(values + s * stride + i * 16);
#pragma GCC unroll 4
      for (int g = 0; g < G; g++)
        sum[g][i] = Lanes::fma(Lanes::set1(weights[g * kStretch + s]), value, sum[g][i]);
    }
  for (int g = 0; g < G; g++)
    for (int i = 0; i < W; i++) Lanes::store(out + g * head_size + i * 16, sum[g][i]);
}

template <int G, class T>
static void add_values(const float* weights, const T* values, int64_t stride, int64_t count,
                       const float* former, int64_t head_size, float* out) {
  constexpr int kWide = Lanes::kRows >= 8 ? 4 : 1;
  int64_t d = 0;
  for (; d + kWide * 16 <= head_size; d += kWide * 16)
    add_columns<G, kWide>(weights, values + d, stride, count, former, head_size, out + d);
  for (; d < head_size; d += 16)
    add_columns<G, 1>(weights, values + d, stride, count, former, head_size, out + d);
}

// G heads from the g-th of one group against one stretch, which lies in `tiles`.
template <int G, class T>
static void attend_stretch(const HeadGroups& h, int64_t kv_head, int64_t g, const Past<T>& past,
                           const Tile* tiles, int64_t tile_count, Ahead<T>& ahead) {
  int64_t head = kv_head * h.group + g, at = kv_head * h.head_size, seen = 0;
  int64_t stride = past.cache.token_stride;
  for (int64_t t = 0; t < tile_count; seen += tiles[t++].count)
    score_keys<G>(h.queries + head * h.head_size, past.keys + tiles[t].at + at, stride,
                  tiles[t].count, h.head_size, h.scores + seen, ahead);
  float former[G];
  for (int i = 0; i < G; i++)
    former[i] = weigh_tile(h.scores + i * kStretch, seen, h.largest + head + i,
                           h.total + head + i);
  seen = 0;
  for (int64_t t = 0; t < tile_count; seen += tiles[t++].count) {
    add_values<G>(h.scores + seen, past.values + tiles[t].at + at, stride, tiles[t].count, former,
                  h.head_size, h.out + head * h.head_size);
    for (float& factor : former) factor = 1;
  }
}

// The positions [first, last] of one sequence; may be none.
template <class T>
static void attend_past(const HeadGroups& h, const Past<T>& past, int64_t first, int64_t last) {
  int64_t heads = h.kv_heads * h.group;
  std::fill(h.largest, h.largest + heads, -1e30f);
  std::fill(h.total, h.total + heads, 0.0f);
  std::fill(h.out, h.out + heads * h.head_size, 0.0f);
  int64_t bytes = h.kv_heads * h.head_size * int64_t(sizeof(T));
  for (int64_t from = first; from <= last; from += kStretch) {
    Tile tiles[kStretch];
    int64_t tile_count = 0, end = std::min(from + kStretch, last + 1);
    for (int64_t s = from; s < end; s += tiles[tile_count++].count)
      tiles[tile_count] = tile_of(past.cache, past.table, s, end - s);
    Ahead<T> ahead(past, end, std::min(end + kStretch - 1, last), bytes,
                   h.kv_heads * h.group * kStretch / Lanes::kSums);
    for (int64_t kv_head = 0; kv_head < h.kv_heads; kv_head++)
      for (int64_t g = 0; g < h.group;) {
        int64_t left = h.group - g;
        if (left >= 4)
          attend_stretch<4>(h, kv_head, g, past, tiles, tile_count, ahead), g += 4;
        else if (left >= 2)
          attend_stretch<2>(h, kv_head, g, past, tiles, tile_count, ahead), g += 2;
        else
          attend_stretch<1>(h, kv_head, g, past, tiles, tile_count, ahead), g++;
      }
  }
}

// The results of one head's spans, `pitch` floats apart, as one.
static void merge_spans(const float* outs, const float* largest, const float* totals,
                        int64_t spans, int64_t pitch, int64_t head_size, float* to) {
  float most = -1e30f, total = 0;
  for (int64_t i = 0; i < spans; i++) most = std::max(most, largest[i * pitch]);
  for (int64_t d = 0; d < head_size; d += 16) Lanes::store(to + d, Lanes::zero());
  for (int64_t i = 0; i < spans; i++) {
    float share = std::exp(largest[i * pitch] - most);
    total += totals[i * pitch] * share;
    for (int64_t d = 0; d < head_size; d += 16) {
      Lanes::F part = Lanes::load(outs + i * pitch + d);
      Lanes::store(to + d, Lanes::fma(Lanes::set1(share), part, Lanes::load(to + d)));
    }
  }
  for (int64_t d = 0; d < head_size; d += 16)
    Lanes::store(to + d, Lanes::mul(Lanes::load(to + d), Lanes::set1(1 / total)));
}
