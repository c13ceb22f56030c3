// The standard headers of all levels. They come before a level's target is set: what they define
// inline would else be compiled for that level, and might be linked into another.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "level.h"
#include "team.h"

#define INLINE static inline __attribute__((always_inline))
