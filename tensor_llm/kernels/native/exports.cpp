// The functions Python calls, and which levels this processor can run.
#include "level.h"
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

struct Choice {
  const Level* level;
  bool here;
};

#if defined(__x86_64__)
// The system grants a process the tiles' registers on request (ARCH_REQ_XCOMP_PERM, feature 18).
bool tiles_granted() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}
#endif

const Choice* choices(int* count) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool vnni512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni");
  static const bool bf16 = vnni512 && __builtin_cpu_supports("avx512bf16");
  static const bool amx = bf16 && __builtin_cpu_supports("amx-tile") &&
                          __builtin_cpu_supports("amx-int8") &&
                          __builtin_cpu_supports("amx-bf16") && tiles_granted();
  static const Choice all[] = {
      {&kPlain, true},
      {&kAvx2, avx2},
      {&kAvx2Vnni, avx2 && __builtin_cpu_supports("avxvnni")},
      {&kAvx512, vnni512},
      {&kAvx512Bf16, bf16},
      {&kAmx, amx},
  };
#else
  static const Choice all[] = {{&kPlain, true}};
#endif
  *count = int(sizeof all / sizeof *all);
  return all;
}

const Level& at(int index) {
  int count;
  return *choices(&count)[index].level;
}

}  // namespace

extern "C" {

int noidle_level_count() {
  int count;
  choices(&count);
  return count;
}

const char* noidle_level_name(int level) { return at(level).name; }

int noidle_level_here(int level) {
  int count;
  return choices(&count)[level].here;
}

void noidle_linear(int level, const Weight* weight, const float* x, int64_t rows, float* y,
                   int threads) {
  at(level).linear(*weight, x, rows, y, threads);
}

void noidle_dequantize(int level, const Weight* weight, uint16_t* out, int threads) {
  at(level).dequantize(*weight, out, threads);
}

void noidle_quantize(int level, const Weight* like, const float* from, uint8_t* codes,
                     uint16_t* scales, int threads) {
  at(level).quantize(*like, from, codes, scales, threads);
}

float noidle_read(int level, const char* memory, int64_t bytes, int threads) {
  return at(level).read(memory, bytes, threads);
}

int64_t noidle_scratch_bytes(int level, const Model* model, int64_t rows, int threads) {
  return int64_t(at(level).scratch_bytes(*model, rows, threads));
}

// The first of a batch's fields that points outside of what it may: 1 token, 2 position,
// 3 sequence, 4 table, 5 wanted; 0 where all is well. Blocks that no row needs may be anything.
int noidle_fault(const Batch* b, int64_t vocabulary, int64_t blocks, int64_t block_tokens) {
  auto outside = [](int64_t x, int64_t end) { return x < 0 || x >= end; };
  for (int64_t row = 0; row < b->rows; row++) {
    int64_t position = b->position[row], sequence = b->sequence[row];
    if (b->token && outside(b->token[row], vocabulary)) return 1;
    if (outside(position, b->table_width * block_tokens)) return 2;
    if (outside(sequence, b->table_rows)) return 3;
    // of rows that follow each other the first has looked at what they share
    bool follows = row && b->sequence[row - 1] == sequence && b->position[row - 1] <= position;
    int64_t from = follows ? b->position[row - 1] / block_tokens : 0;
    for (int64_t i = from; i <= position / block_tokens; i++)
      if (outside(b->table[sequence * b->table_width + i], blocks)) return 4;
  }
  for (int64_t i = 0; i < b->wanted_count; i++)
    if (outside(b->wanted[i], b->rows)) return 5;
  return 0;
}

void noidle_step(int level, const Model* model, const Cache* cache, const Batch* batch,
                 char* scratch, int threads) {
  at(level).step(*model, *cache, *batch, scratch, threads);
}
}
