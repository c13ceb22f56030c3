// The entries of one instruction set level; each level_*.cpp compiles the same kernels for its own.
#pragma once
#include "types.h"

struct Level {
  const char* name;
  // y (rows, weight rows) = x (rows, weight columns) weight^T + bias
  void (*linear)(const Weight& weight, const float* x, int64_t rows, float* y, int threads);
  // out (weight rows, weight columns) in bfloat16
  void (*dequantize)(const Weight& weight, uint16_t* out, int threads);
  // packs (rows, columns) of floats into `codes` and `scales`; `like` tells sizes and kind
  void (*quantize)(const Weight& like, const float* from, uint8_t* codes, uint16_t* scales,
                   int threads);
  // reads memory as fast as it goes; returns what keeps the compiler from leaving it out
  float (*read)(const char* memory, int64_t bytes, int threads);
  size_t (*scratch_bytes)(const Model& model, int64_t rows, int threads);
  void (*step)(const Model& model, const Cache& cache, const Batch& batch, char* scratch,
               int threads);
};

extern const Level kPlain;
#if defined(__x86_64__)
extern const Level kAvx2, kAvx2Vnni, kAvx512, kAvx512Bf16, kAmx;
#endif
