// The FP8 matrix instruction of a warpgroup: 64 x N += (64 x 32) (N x 32)^T, in float32.
//
// A thread holds N / 2 sums: with `warp` its warp in the warpgroup and `lane` its place there,
// d[4 j + {0, 1}] belong to row 16 warp + lane / 4 and columns 8 j + 2 (lane % 4) + {0, 1},
// d[4 j + {2, 3}] to the row 8 further down (PTX ISA, "wgmma.mma_async", fragment of D).
#pragma once

#include <cstdint>

namespace gemm::cuda {

// Describes a tile of rows of 128 bytes, as the copy engine writes it with its 128-byte swizzle:
// eight rows every 1024 bytes (PTX ISA, "Matrix descriptor").
__device__ __forceinline__ uint64_t describe_tile(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;  // the leading stride, implied by the swizzle
  return kSwizzle128 | kEightRows | kUnused | ((address >> 4) & 0x3fff);
}

// Registers written before this may be sums of the next multiplications.
__device__ __forceinline__ void begin_multiplying() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void end_multiplying() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending>
__device__ __forceinline__ void wait_for_sums() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// d = a b^T, or d += a b^T if `add`.
template <int columns>
__device__ void multiply(float (&d)[columns / 2], uint64_t a, uint64_t b, bool add);

// The operands of an instruction of 8 sums, and their names in its text.
#define GEMM_SUMS(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define GEMM_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define GEMM_NAMES_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define GEMM_NAMES_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define GEMM_NAMES_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define GEMM_NAMES_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define GEMM_NAMES_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define GEMM_NAMES_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define GEMM_NAMES_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define GEMM_NAMES_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define GEMM_NAMES_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define GEMM_NAMES_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define GEMM_NAMES_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define GEMM_NAMES_TO_4 GEMM_NAMES_0 ", " GEMM_NAMES_1 ", " GEMM_NAMES_2 ", " GEMM_NAMES_3
#define GEMM_NAMES_TO_5 GEMM_NAMES_TO_4 ", " GEMM_NAMES_4
#define GEMM_NAMES_TO_6 GEMM_NAMES_TO_5 ", " GEMM_NAMES_5
#define GEMM_NAMES_TO_8 GEMM_NAMES_TO_6 ", " GEMM_NAMES_6 ", " GEMM_NAMES_7
#define GEMM_NAMES_TO_12 \
  GEMM_NAMES_TO_8 ", " GEMM_NAMES_8 ", " GEMM_NAMES_9 ", " GEMM_NAMES_10 ", " GEMM_NAMES_11
#define GEMM_SUMS_TO_4 GEMM_SUMS(0), GEMM_SUMS(8), GEMM_SUMS(16), GEMM_SUMS(24)
#define GEMM_SUMS_TO_5 GEMM_SUMS_TO_4, GEMM_SUMS(32)
#define GEMM_SUMS_TO_6 GEMM_SUMS_TO_5, GEMM_SUMS(40)
#define GEMM_SUMS_TO_8 GEMM_SUMS_TO_6, GEMM_SUMS(48), GEMM_SUMS(56)
#define GEMM_SUMS_TO_12 \
  GEMM_SUMS_TO_8, GEMM_SUMS(64), GEMM_SUMS(72), GEMM_SUMS(80), GEMM_SUMS(88)

#define GEMM_MULTIPLY(columns, names, sums, name_a, name_b, name_add)                       \
  template <>                                                                               \
  __device__ __forceinline__ void multiply<columns>(                                        \
      float (&d)[columns / 2], uint64_t a, uint64_t b, bool add) {                          \
    asm volatile(                                                                           \
        "{\n.reg .pred add;\nsetp.ne.b32 add, " name_add ", 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" names "}, "      \
        name_a ", " name_b ", add, 1, 1;\n}"                                                \
        : sums                                                                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                      \
  }

GEMM_MULTIPLY(64, GEMM_NAMES_TO_4, GEMM_SUMS_TO_4, "%32", "%33", "%34")
GEMM_MULTIPLY(80, GEMM_NAMES_TO_5, GEMM_SUMS_TO_5, "%40", "%41", "%42")
GEMM_MULTIPLY(96, GEMM_NAMES_TO_6, GEMM_SUMS_TO_6, "%48", "%49", "%50")
GEMM_MULTIPLY(128, GEMM_NAMES_TO_8, GEMM_SUMS_TO_8, "%64", "%65", "%66")
GEMM_MULTIPLY(192, GEMM_NAMES_TO_12, GEMM_SUMS_TO_12, "%96", "%97", "%98")

#undef GEMM_MULTIPLY
#undef GEMM_SUMS
#undef GEMM_NAMES_TO_4
#undef GEMM_SUMS_TO_4
#undef GEMM_NAMES_TO_5
#undef GEMM_SUMS_TO_5
#undef GEMM_NAMES_TO_6
#undef GEMM_SUMS_TO_6
#undef GEMM_NAMES_TO_8
#undef GEMM_SUMS_TO_8
#undef GEMM_NAMES_TO_12
#undef GEMM_SUMS_TO_12
#undef GEMM_NAMES_0
#undef GEMM_NAMES_1
#undef GEMM_NAMES_2
#undef GEMM_NAMES_3
#undef GEMM_NAMES_4
#undef GEMM_NAMES_5
#undef GEMM_NAMES_6
#undef GEMM_NAMES_7
#undef GEMM_NAMES_8
#undef GEMM_NAMES_9
#undef GEMM_NAMES_10
#undef GEMM_NAMES_11

}  // namespace gemm::cuda
