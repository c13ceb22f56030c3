// The whole decoder for a few tokens, each of a sequence of its own or of one and the same, in
// one call: what Python and a fork for each of some 300 steps would cost falls away.

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
  return round_up(std::max(single, RunMemory::floats(m.head_size)), 16);
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

class Step {
 public:
  Step(const Model& model, const Cache& cache, const Batch& batch, const Scratch& scratch,
       Worker& worker)
      : m_(model), cache_(cache), batch_(batch), s_(scratch), worker_(worker) {}

  void run() {
    if (batch_.token)
      worker_.each(batch_.rows, [&](int64_t row) {
        embed(m_.embedding, batch_.token[row], batch_.x + row * m_.hidden);
      });
    make_angles();
    for (int64_t i = 0; i < m_.layer_count; i++) run_layer(i);
    if (batch_.wanted_count) run_head();
  }

 private:
  void run_layer(int64_t index) {
    const Layer& layer = m_.layers[index];
    int64_t query_width = m_.heads * m_.head_size, kv_width = m_.kv_heads * m_.head_size;
    norm(layer.attention_norm, layer.query);
    Product projections[] = {{&layer.query, s_.query, query_width, false},
                             {&layer.key, s_.key, kv_width, false},
                             {&layer.value, s_.value, kv_width, false}};
    run_products(worker_, projections, 3, s_.narrow, batch_.rows);
    if (cache_.kind == 0) attention<float>(layer, index);
    else attention<uint16_t>(layer, index);
    fill(s_.attended, s_.out, query_width, layer.output);
    Product output = {&layer.output, batch_.x, m_.hidden, true};
    run_products(worker_, &output, 1, s_.attended, batch_.rows);
    norm(layer.mlp_norm, layer.gate);
    Product wide[] = {{&layer.gate, s_.gate, m_.mlp, false}, {&layer.up, s_.up, m_.mlp, false}};
    run_products(worker_, wide, 2, s_.narrow, batch_.rows);
    gate(layer.down);
    Product down = {&layer.down, batch_.x, m_.hidden, true};
    run_products(worker_, &down, 1, s_.inner, batch_.rows);
  }

  void run_head() {
    const Weight& head = m_.head;
    // the narrow one's memory, which the layers are done with
    Operand x = lay_out_operand((char*)s_.narrow.bf16, batch_.wanted_count, head);
    worker_.each(batch_.wanted_count, [&](int64_t row) {
      const float* from = batch_.x + batch_.wanted[row] * m_.hidden;
      norm_row(from, m_.norm, m_.hidden, m_.epsilon, s_.normed + row * m_.hidden);
    });
    fill_operand(worker_, x, s_.normed, m_.hidden, batch_.wanted_count, head);
    Product logits = {&head, batch_.logits, head.rows, false};
    run_products(worker_, &logits, 1, x, batch_.wanted_count);
  }

  // The norm and what follows row by row in one phase, where rows lie apart.
  void norm(const float* weight, const Weight& like) {
    bool apart = s_.narrow.form != Form::kPanels;
    worker_.each(batch_.rows, [&](int64_t row) {
      float* normed = s_.normed + row * m_.hidden;
      norm_row(batch_.x + row * m_.hidden, weight, m_.hidden, m_.epsilon, normed);
      if (apart) fill_row(s_.narrow, row, normed, like);
    });
    if (!apart) fill(s_.narrow, s_.normed, m_.hidden, like);
  }

  void fill(const Operand& to, const float* x, int64_t width, const Weight& like) {
    fill_operand(worker_, to, x, width, batch_.rows, like);
  }

  void gate(const Weight& like) {
    bool apart = s_.inner.form != Form::kPanels;
    worker_.each(batch_.rows, [&](int64_t row) {
      float* inner = s_.gate + row * m_.mlp;
      gate_row(inner, s_.up + row * m_.mlp, m_.mlp);
      if (apart) fill_row(s_.inner, row, inner, like);
    });
    if (!apart) fill(s_.inner, s_.gate, m_.mlp, like);
  }

  // cosines, then sines, of each row's position
  void make_angles() {
    int64_t half = m_.head_size / 2;
    worker_.each(batch_.rows, [&](int64_t row) {
      float* cos = s_.angles + row * m_.head_size;
      for (int64_t i = 0; i < half; i++) {
        float angle = float(batch_.position[row]) * m_.frequency[i];
        cos[i] = std::cos(angle) * m_.rotary_scale;
        cos[i + half] = std::sin(angle) * m_.rotary_scale;
      }
    });
  }

  template <class T>
  void attention(const Layer& layer, int64_t index) {
    T* keys = (T*)cache_.keys[index];
    T* values = (T*)cache_.values[index];
    int64_t heads = m_.heads + m_.kv_heads;
    worker_.each(batch_.rows, [&](int64_t row) {
      for (int64_t head = 0; head < heads; head++) turn(layer, row, head);
      remember(row, keys, values);
    });
    worker_.each(s_.chunk_count, [&](int64_t chunk) {
      const Run& run = run_of(chunk);
      if (run.count == 1) attend_single(run, chunk - run.chunk, keys, values, layer.window);
      else attend_together(run, chunk - run.chunk, keys, values, layer.window);
    });
    worker_.each(s_.run_count, [&](int64_t run) { merge(s_.runs[run]); });
  }

  const Run& run_of(int64_t chunk) const {
    auto later = [](int64_t chunk, const Run& run) { return chunk < run.chunk; };
    return *(std::upper_bound(s_.runs, s_.runs + s_.run_count, chunk, later) - 1);
  }

  void turn(const Layer& layer, int64_t row, int64_t head) {
    bool query = head < m_.heads;
    float* x = query ? s_.query + (row * m_.heads + head) * m_.head_size
                     : s_.key + (row * m_.kv_heads + head - m_.heads) * m_.head_size;
    const float* weight = query ? layer.query_norm : layer.key_norm;
    if (weight) norm_row(x, weight, m_.head_size, m_.epsilon, x);
    const float* cos = s_.angles + row * m_.head_size;
    turn_head(x, cos, cos + m_.head_size / 2, m_.head_size / 2);
    if (!query) return;
    Lanes::F scale = Lanes::set1(1 / std::sqrt(float(m_.head_size)));
    for (int64_t i = 0; i < m_.head_size; i += 16)
      Lanes::store(x + i, Lanes::mul(Lanes::load(x + i), scale));
  }

  template <class T>
  void remember(int64_t row, T* keys, T* values) {
    int64_t position = batch_.position[row], width = m_.kv_heads * m_.head_size;
    int64_t block = table(row)[position / cache_.block_tokens];
    int64_t at = block * cache_.block_stride +
                 position % cache_.block_tokens * cache_.token_stride;
    for (int64_t i = 0; i < width; i += 16) {
      store_cached(keys + at + i, Lanes::load(s_.key + row * width + i));
      store_cached(values + at + i, Lanes::load(s_.value + row * width + i));
    }
  }

  float* span_of(int64_t row, int64_t span) const {
    return s_.spans + (row * kMostSpans + span) * s_.span_size;
  }

  // Some heads of one row against one span of its past.
  template <class T>
  void attend_single(const Run& run, int64_t chunk, const T* keys, const T* values,
                     int64_t window) {
    int64_t row = run.first, span = chunk / run.parts, part = chunk % run.parts;
    int64_t head = m_.kv_heads * part / run.parts, end = m_.kv_heads * (part + 1) / run.parts;
    int64_t group = m_.heads / m_.kv_heads, at = head * group;
    float* own = s_.thread + worker_.thread() * s_.thread_size;
    float* to = span_of(row, span);
    HeadGroups h = {s_.query + (row * m_.heads + at) * m_.head_size, to + at * m_.head_size,
                    to + m_.heads * m_.head_size + at, to + m_.heads * (m_.head_size + 1) + at,
                    own, end - head, group, m_.head_size};
    int64_t past = batch_.position[row] + 1, size = span_size(past);
    int64_t first = std::max(span * size, window ? past - window : 0);
    Past<T> seen = {keys + head * m_.head_size, values + head * m_.head_size, cache_, table(row)};
    attend_past(h, seen, first, std::min((span + 1) * size, past) - 1);
  }

  void merge(const Run& run) {
    if (run.count > 1) return;
    const float* from = span_of(run.first, 0);
    for (int64_t head = 0; head < m_.heads; head++)
      merge_spans(from + head * m_.head_size, from + m_.heads * m_.head_size + head,
                  from + m_.heads * (m_.head_size + 1) + head, run.spans, s_.span_size,
                  m_.head_size, s_.out + (run.first * m_.heads + head) * m_.head_size);
  }

  template <class T>
  void attend_together(const Run& run, int64_t kv_head, const T* keys, const T* values,
                       int64_t window) {
    RunMemory r(s_.thread + worker_.thread() * s_.thread_size, m_.head_size);
    int64_t group = m_.heads / m_.kv_heads, part = group * m_.head_size;
    for (int64_t i = 0; i < run.count; i++) {
      const float* from = s_.query + ((run.first + i) * m_.kv_heads + kv_head) * part;
      std::memcpy(r.queries + i * part, from, size_t(part) * 4);
    }
    attend_run(r, cache_, keys + kv_head * m_.head_size, values + kv_head * m_.head_size,
               table(run.first), batch_.position[run.first], run.count, group, m_.head_size,
               window);
    for (int64_t i = 0; i < run.count * group; i++) {
      int64_t row = run.first + i / group, head = kv_head * group + i % group;
      float* to = s_.out + (row * m_.heads + head) * m_.head_size;
      for (int64_t d = 0; d < m_.head_size; d += 16) {
        Lanes::F sum = Lanes::load(r.out + i * m_.head_size + d);
        Lanes::store(to + d, Lanes::mul(sum, Lanes::set1(1 / r.total[i])));
      }
    }
  }

  const int64_t* table(int64_t row) const {
    return batch_.table + batch_.sequence[row] * batch_.table_width;
  }

  const Model& m_;
  const Cache& cache_;
  const Batch& batch_;
  const Scratch& s_;
  Worker& worker_;
};
