// Norm, gate and rotary embedding of single rows; widths are multiples of 16.

static void norm_row(const float* x, const float* weight, int64_t width, float epsilon,
                     float* y) {
  Lanes::F squares = Lanes::zero();
  for (int64_t i = 0; i < width; i += 16) {
    Lanes::F part = Lanes::load(x + i);
    squares = Lanes::fma(part, part, squares);
  }
  float factor = 1 / std::sqrt(Lanes::sum(squares) / float(width) + epsilon);
  for (int64_t i = 0; i < width; i += 16) {
    Lanes::F part = Lanes::mul(Lanes::load(x + i), Lanes::set1(factor));
    Lanes::store(y + i, Lanes::mul(part, Lanes::load(weight + i)));
  }
}

// silu(gate) * up
INLINE Lanes::F gated(Lanes::F gate, Lanes::F up) {
  Lanes::F down = Lanes::add(Lanes::set1(1), exponential(Lanes::sub(Lanes::zero(), gate)));
  return Lanes::mul(Lanes::div(gate, down), up);
}

static void gate_row(float* gate, const float* up, int64_t width) {
  for (int64_t i = 0; i < width; i += 16)
    Lanes::store(gate + i, gated(Lanes::load(gate + i), Lanes::load(up + i)));
}

// One head, in the half-split form; `cos` and `sin` hold half a head.
static void turn_head(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    Lanes::F a = Lanes::load(x + i), b = Lanes::load(x + i + half);
    Lanes::F c = Lanes::load(cos + i), s = Lanes::load(sin + i);
    Lanes::store(x + i, Lanes::sub(Lanes::mul(a, c), Lanes::mul(b, s)));
    Lanes::store(x + i + half, Lanes::fma(a, s, Lanes::mul(b, c)));
  }
  for (; i < half; i++) {
    float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}
