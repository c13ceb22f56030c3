// For llama.cpp's build, included before all else: g++ 12 takes the tiles' settings for eight bytes
// and leaves the rest of them unwritten, so that the first tile instruction is an illegal one.
#if defined(__x86_64__)
#include <immintrin.h>
#define _tile_loadconfig(config)                       \
  do {                                                 \
    __asm__ volatile("" : : "r"(config) : "memory");   \
    (_tile_loadconfig)(config);                        \
  } while (0)
#endif
