// Which product kernel serves a chunk, and the phase that runs the chunks.

#ifdef NOIDLE_AMX
#include "tiles.h"
#include "wide.h"
#endif

template <int N, int kind>
static void product_block(const Product& p, int64_t block, const Operand& x, int64_t m,
                          int64_t count) {
  Lanes::F sums[N];
  if constexpr (kind == kBf16) dense_block<N, uint16_t>(*p.weight, block, x, m, sums);
  else if constexpr (kind == kFloat) dense_block<N, float>(*p.weight, block, x, m, sums);
  else packed_block<N, kind>(*p.weight, block, x, m, sums);
  for (int64_t n = 0; n < count; n++) put(p, block, m + n, sums[n]);
}

// Operands hold more rows than are used, so that reading a few too many is harmless.
template <int kind>
static void product_rows(const Product& p, int64_t block, const Operand& x, int64_t rows) {
  for (int64_t m = 0; m < rows; m += Lanes::kRows) {
    int64_t count = std::min<int64_t>(rows - m, Lanes::kRows);
    if (count == 1) product_block<1, kind>(p, block, x, m, count);
    else if (count == 2) product_block<2, kind>(p, block, x, m, count);
    else if (count <= 4) product_block<std::min(4, Lanes::kRows), kind>(p, block, x, m, count);
    else product_block<Lanes::kRows, kind>(p, block, x, m, count);
  }
}

#ifdef NOIDLE_AMX
static ChunkMemory& chunk_memory() {
  static thread_local ChunkMemory memory;
  return memory;
}
#endif

static void product_chunk(const Product& p, int64_t first, int64_t last, const Operand& x,
                          int64_t rows) {
  const Weight& w = *p.weight;
#ifdef NOIDLE_AMX
  ChunkMemory& memory = chunk_memory();
  if (x.form == Form::kPanels) return direct_chunk(p, first, last, x, rows, memory);
  if (x.form == Form::kTiles) return wide_chunk(p, first, last, x, rows, memory);
#endif
  for (int64_t block = first; block < last; block++) {
    if (w.kind == kBf16) product_rows<kBf16>(p, block, x, rows);
    if (w.kind == kFloat) product_rows<kFloat>(p, block, x, rows);
    if (w.kind == kInt8) product_rows<kInt8>(p, block, x, rows);
    if (w.kind == kInt4) product_rows<kInt4>(p, block, x, rows);
  }
}

// Blocks a thread takes at a time; even, for tiles take them in pairs.
static int64_t chunk_blocks(const Weight& w, int64_t rows, int threads) {
  int64_t fitting = kChunkBytes / block_bytes(w);
#ifdef NOIDLE_AMX
  if (w.kind != kFloat && rows > (w.kind == kBf16 ? kDirectRows : kFewRows)) {
    int64_t fair = block_count(w) / (2 * threads);
    fitting = std::min(2 * kStrips, fair);
  }
#endif
  (void)rows, (void)threads;
  return std::max<int64_t>(2, fitting / 2 * 2);
}

// One phase: several products of the same operand, of weights of one kind and group.
static void run_products(Worker& worker, const Product* products, int count, const Operand& x,
                         int64_t rows) {
  int64_t chunks[4] = {}, total = 0, blocks[4];
  for (int i = 0; i < count; i++) {
    blocks[i] = chunk_blocks(*products[i].weight, rows, worker.threads());
    chunks[i] = (block_count(*products[i].weight) + blocks[i] - 1) / blocks[i];
    total += chunks[i];
  }
#ifdef NOIDLE_AMX
  TileSetting setting;
#endif
  worker.each(total, [&](int64_t chunk) {
    int i = 0;
    for (; chunk >= chunks[i]; i++) chunk -= chunks[i];
    int64_t first = chunk * blocks[i];
    int64_t last = std::min(first + blocks[i], block_count(*products[i].weight));
    product_chunk(products[i], first, last, x, rows);
  });
}

#ifdef NOIDLE_AMX
// The same for a gate and what it lets through, whose product is the next one's operand; all in
// tiles.
static void run_gated(Worker& worker, const Weight& gate, const Weight& up, const Operand& x,
                      int64_t rows, const Operand& to) {
  int64_t blocks = std::min(kStrips, chunk_blocks(gate, rows, worker.threads()));
  TileSetting setting;
  worker.each((block_count(gate) + blocks - 1) / blocks, [&](int64_t chunk) {
    int64_t first = chunk * blocks, last = std::min(first + blocks, block_count(gate));
    gated_chunk(gate, up, first, last, x, rows, chunk_memory(), to);
  });
}
#endif
