// The entries of the level whose lanes were included before, inside its namespace.

static void linear_entry(const Weight& w, const float* x, int64_t rows, float* y, int threads) {
  int64_t width = round_up(w.columns, 16);
  size_t bytes = round_up(int64_t(operand_bytes(rows, w.columns)), 64);
  char* memory = (char*)std::aligned_alloc(64, bytes);
  Operand operand = lay_out_operand(memory, rows, w);
  float* row_memory = (float*)std::calloc(size_t(rows * width), 4);
  run_team(threads, 3, [&](Worker& worker) {
    worker.each(rows, [&](int64_t row) {
      std::memcpy(row_memory + row * width, x + row * w.columns, size_t(w.columns) * 4);
    });
    fill_operand(worker, operand, row_memory, width, rows, w);
    Product product = {&w, y, w.rows, false};
    run_products(worker, &product, 1, operand, rows);
  });
  std::free(row_memory);
  std::free(memory);
}

static void dequantize_entry(const Weight& w, uint16_t* out, int threads) {
  run_team(threads, 1, [&](Worker& worker) {
    worker.each(block_count(w), [&](int64_t block) { unpack_block(w, block, out); });
  });
}

static void quantize_entry(const Weight& like, const float* from, uint8_t* codes,
                           uint16_t* scales, int threads) {
  run_team(threads, 1, [&](Worker& worker) {
    worker.each(block_count(like),
                [&](int64_t block) { pack_block(like, block, from, codes, scales); });
  });
}

static float read_entry(const char* memory, int64_t bytes, int threads) {
  std::atomic<int> seen{0};
  run_team(threads, 1, [&](Worker& worker) {
    worker.each(bytes / kChunkBytes, [&](int64_t chunk) {
      const char* from = memory + chunk * kChunkBytes;
      Lanes::F sum[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
      for (int64_t at = 0; at < kChunkBytes; at += 256) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
          prefetch(from + at + i * 64);
          sum[i] = Lanes::max(sum[i], Lanes::load((const float*)(from + at) + i * 16));
        }
      }
      for (Lanes::F part : sum) seen += Lanes::sum(part) > 0;
    });
  });
  return float(seen);
}

static size_t scratch_entry(const Model& model, int64_t rows, int threads) {
  Scratch scratch;
  return lay_out(model, rows, threads, nullptr, &scratch);
}

static void step_entry(const Model& model, const Cache& cache, const Batch& batch, char* memory,
                       int threads) {
  Scratch scratch;
  lay_out(model, batch.rows, threads, memory, &scratch);
  scratch.run_count = find_runs(model, batch, scratch.runs);
  scratch.chunk_count = share_runs(model, batch, scratch.runs, scratch.run_count, threads);
  // a layer has up to 14 phases; then the embedding, the angles and the head
  run_team(threads, int(model.layer_count) * 14 + 5, [&](Worker& worker) {
    Step(model, cache, batch, scratch, worker).run();
  });
}
