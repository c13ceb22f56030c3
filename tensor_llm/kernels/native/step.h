// The whole decoder for a few tokens, each of a sequence of its own or of one and the same, in
// one call: what Python and a fork for each of some 300 steps would cost falls away.

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
    make_inner(layer);
    Product down = {&layer.down, batch_.x, m_.hidden, true};
    run_products(worker_, &down, 1, s_.inner, batch_.rows);
  }

  void make_inner(const Layer& layer) {
#ifdef NOIDLE_AMX
    if (s_.narrow.form == Form::kTiles && s_.inner.form == Form::kTiles)
      return run_gated(worker_, layer.gate, layer.up, s_.narrow, batch_.rows, s_.inner);
#endif
    Product wide[] = {{&layer.gate, s_.gate, m_.mlp, false}, {&layer.up, s_.up, m_.mlp, false}};
    run_products(worker_, wide, 2, s_.narrow, batch_.rows);
    gate(layer.down);
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

  // A run's queries of one key head, as they lie for one token.
  const float* queries_of(const Run& run, int64_t i, int64_t kv_head) const {
    int64_t part = m_.heads / m_.kv_heads * m_.head_size;
    return s_.query + ((run.first + i) * m_.kv_heads + kv_head) * part;
  }

  template <class T>
  void attend_together(const Run& run, int64_t kv_head, const T* keys, const T* values,
                       int64_t window) {
    keys += kv_head * m_.head_size;
    values += kv_head * m_.head_size;
    float* own = s_.thread + worker_.thread() * s_.thread_size;
    int64_t group = m_.heads / m_.kv_heads, part = group * m_.head_size;
    int64_t position = batch_.position[run.first];
#ifdef NOIDLE_AMX
    if constexpr (sizeof(T) == 2)
      if (tiles_take(m_.head_size, cache_.kind)) {
        TileRunMemory r(own, m_.head_size);
        std::memset(r.queries, 0, 2 * size_t(kMostQueries * m_.head_size));
        for (int64_t i = 0; i < run.count; i++)
          for (int64_t d = 0; d < part; d += 16)
            Lanes::store_bf16(r.queries + i * part + d,
                              Lanes::load(queries_of(run, i, kv_head) + d));
        Past<T> past = {keys, values, cache_, table(run.first)};
        attend_run_tiles(r, past, position, run.count, group, m_.head_size, window);
        return put_run(run, kv_head, r.out, r.total);
      }
#endif
    RunMemory r(own, m_.head_size);
    for (int64_t i = 0; i < run.count; i++)
      std::memcpy(r.queries + i * part, queries_of(run, i, kv_head), size_t(part) * 4);
    attend_run(r, cache_, keys, values, table(run.first), position, run.count, group,
               m_.head_size, window);
    put_run(run, kv_head, r.out, r.total);
  }

  void put_run(const Run& run, int64_t kv_head, const float* out, const float* total) {
    int64_t group = m_.heads / m_.kv_heads;
    for (int64_t i = 0; i < run.count * group; i++) {
      int64_t row = run.first + i / group, head = kv_head * group + i % group;
      float* to = s_.out + (row * m_.heads + head) * m_.head_size;
      for (int64_t d = 0; d < m_.head_size; d += 16) {
        Lanes::F sum = Lanes::load(out + i * m_.head_size + d);
        Lanes::store(to + d, Lanes::mul(sum, Lanes::set1(1 / total[i])));
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
