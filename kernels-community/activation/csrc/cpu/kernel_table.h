// What one instruction set offers: plain functions over dense spans of memory.
//
// The units that fill these tables are compiled for processors that this machine may not have.
// They therefore include nothing but this header, the C headers and intrinsics: an inline function
// of the C++ library, compiled there with AVX-512, could be the copy that the linker keeps for all.
#pragma once

#include <stdint.h>

#include "../activation_kind.h"

namespace activation {

// out[i] = f(x[i]) for i in [0, count). out may be x. Fatrelu alone reads the threshold.
using UnarySpan = void (*)(void* out, const void* x, int64_t count, float threshold);

// out[i] = f(gate[i]) * up[i] for i in [0, count). out may be gate or up.
using GatedSpan =
    void (*)(void* out, const void* gate, const void* up, int64_t count, float threshold);

struct KernelTable {
  const char* isa;
  UnarySpan unary[kActivationCount][kElementCount];
  GatedSpan gated[kActivationCount][kElementCount];
};

// Constants, so that reading one executes no instruction of its instruction set.
namespace baseline {
extern const KernelTable kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const KernelTable kKernels;
}
namespace avx512 {
extern const KernelTable kKernels;
}
#endif

}  // namespace activation
