// The level for every processor.
#include "standard.h"
namespace level_plain {
#include "lanes_plain.h"
#include "kernels.h"
}  // namespace level_plain
const Level kPlain = {
    "plain",
    level_plain::linear_entry,
    level_plain::dequantize_entry,
    level_plain::quantize_entry,
    level_plain::read_entry,
    level_plain::scratch_entry,
    level_plain::step_entry,
};
