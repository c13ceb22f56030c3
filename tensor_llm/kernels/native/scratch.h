// The memory one step works in, and its rows cut into chunks of attention.

struct Scratch {
  // of the residual after its norm, and of the inner widths
  Operand narrow, attended, inner;
  float *normed, *query, *key, *value, *out, *gate, *up, *angles;
  // one part a thread
  float* thread;
  int64_t thread_size;
  Run* runs;
  int64_t run_count, chunk_count;
  // (rows, kMostSpans, span_size)
  float* spans;
  int64_t span_size;
};

static int64_t thread_floats(const Model& m) {
  int64_t single = group_floats(m.heads / m.kv_heads) + 2 * round_up(m.heads, 16);
  int64_t run = RunMemory::floats(m.head_size);
#ifdef NOIDLE_AMX
  run = std::max(run, TileRunMemory::floats(m.head_size));
#endif
  return round_up(std::max(single, run), 16);
}

// Of one span of one row: sums, largest scores and totals of all heads.
static int64_t span_floats(const Model& m) { return round_up(m.heads * (m.head_size + 2), 16); }

// Whether row + 1 is the token behind row's.
static bool follows(const Batch& b, int64_t row) {
  return b.sequence[row + 1] == b.sequence[row] && b.position[row + 1] == b.position[row] + 1;
}

// Cuts the batch into runs no longer than one key head's queries allow; returns their number.
static int64_t find_runs(const Model& m, const Batch& b, Run* runs) {
  int64_t most = std::max<int64_t>(1, kMostQueries / (m.heads / m.kv_heads)), count = 0;
  for (int64_t row = 0; row < b.rows; row++) {
    Run* last = count ? &runs[count - 1] : nullptr;
    if (last && last->count < most && follows(b, row - 1)) last->count++;
    else runs[count++] = {row, 1, 0, 0, 0};
  }
  return count;
}

// Cuts the runs into chunks of work, several a thread; returns their number.
static int64_t share_runs(const Model& m, const Batch& b, Run* runs, int64_t count, int threads) {
  int64_t chunks = 0, spans = 0;
  for (Run* run = runs; run < runs + count; run++) {
    run->spans = run->count > 1 ? m.kv_heads : span_count(b.position[run->first] + 1);
    spans += run->spans;
  }
  // heads apart only where there is not enough else: together their memory is one run
  int64_t parts = std::clamp<int64_t>((4 * threads + spans - 1) / spans, 1, m.kv_heads);
  for (Run* run = runs; run < runs + count; run++) {
    run->parts = run->count > 1 ? 1 : parts;
    run->chunk = chunks;
    chunks += run->spans * run->parts;
  }
  return chunks;
}

// Lays the scratch out from `memory`; with nullptr it only counts the bytes.
static size_t lay_out(const Model& m, int64_t rows, int threads, char* memory, Scratch* s) {
  size_t used = 0;
  auto floats = [&](int64_t count) {
    float* at = (float*)(memory + used);
    used += size_t(round_up(count, 16)) * 4;
    return at;
  };
  auto operand = [&](const Weight& like) {
    Operand x = lay_out_operand(memory + used, rows, like);
    used += operand_bytes(rows, like.columns);
    return x;
  };
  int64_t query_width = m.heads * m.head_size, kv_width = m.kv_heads * m.head_size;
  const Layer& layer = m.layers[0];
  s->narrow = operand(layer.query);
  s->attended = operand(layer.output);
  s->inner = operand(layer.down);
  s->normed = floats(rows * m.hidden);
  s->query = floats(rows * query_width);
  s->key = floats(rows * kv_width);
  s->value = floats(rows * kv_width);
  s->out = floats(rows * query_width);
  s->gate = floats(rows * m.mlp);
  s->up = floats(rows * m.mlp);
  s->angles = floats(rows * m.head_size);
  s->thread_size = thread_floats(m);
  s->thread = floats(threads * s->thread_size);
  s->runs = (Run*)floats(rows * int64_t(sizeof(Run) / sizeof(float)));
  // memory that no row needs is never touched
  s->span_size = span_floats(m);
  s->spans = floats(rows * kMostSpans * s->span_size);
  return used;
}
