// All kernels, written over the lanes included before; included once in each level's namespace.
#include "operand.h"
// products use operands
#include "products.h"
// the softmax has the exponential that the gate uses
#include "softmax.h"
#include "elementwise.h"
// wide products end with the gate
#include "dispatch.h"
#include "attention.h"
#include "run_attention.h"
#ifdef NOIDLE_AMX
#include "run_attention_tiles.h"
#endif
#include "unpack.h"
#include "embedding.h"
#include "scratch.h"
#include "step.h"
#include "pack.h"
// last: the entries use all of them
#include "entries.h"
