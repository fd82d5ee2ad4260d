// Thirty-two uint8 pixels at a time, for processors with AVX2.
#if defined(__x86_64__)
#pragma GCC target("avx2")

#include <immintrin.h>

#include "gray_row.h"

namespace img2gray::avx2 {
namespace {

constexpr int kStep = 32;

// Eight pixels, a channel each, one value to a 32-bit lane.
struct Channels {
  __m256i red;
  __m256i green;
  __m256i blue;
};

// The 24 bytes of eight pixels, pixels 0 to 3 in the lower half and 4 to 7 in the upper. The second
// load begins 8 bytes in, so that it ends with the last pixel and reads nothing beyond.
Channels load_interleaved(const uint8_t* p) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8));
  const __m256i bytes = _mm256_set_m128i(second, first);
  // Byte 0 of each lane takes the channel; -1 makes the other three 0.
  const __m256i red = _mm256_setr_epi8(
      0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1,  //
      4, -1, -1, -1, 7, -1, -1, -1, 10, -1, -1, -1, 13, -1, -1, -1);
  // -1 + 1 would select byte 0, so the next channel is added to the selecting bytes alone.
  const __m256i next = _mm256_set1_epi32(1);
  const __m256i green = _mm256_add_epi32(red, next);
  const __m256i blue = _mm256_add_epi32(green, next);
  return {
      _mm256_shuffle_epi8(bytes, red), _mm256_shuffle_epi8(bytes, green),
      _mm256_shuffle_epi8(bytes, blue)};
}

__m256i load_plane(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// The weighted sum of eight pixels, one grey value to a 32-bit lane.
__m256i gray_lanes(const Channels& pixels, const FixedWeights& weights) {
  const __m256i red = _mm256_mullo_epi32(pixels.red, _mm256_set1_epi32(weights.red));
  const __m256i green = _mm256_mullo_epi32(pixels.green, _mm256_set1_epi32(weights.green));
  const __m256i blue = _mm256_mullo_epi32(pixels.blue, _mm256_set1_epi32(weights.blue));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(red, green), blue), kFractionBits);
}

// Narrows four vectors of eight values to thirty-two bytes.
void store_bytes(uint8_t* p, __m256i a, __m256i b, __m256i c, __m256i d) {
  // Packs work within each half of a register, so groups of four values come out as
  // a0 b0 c0 d0 a1 b1 c1 d1.
  const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(bytes, order));
}

}  // namespace

int64_t gray_interleaved(
    uint8_t* out, const uint8_t* pixels, int64_t count, const FixedWeights& weights) {
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const uint8_t* p = pixels + 3 * i;
    store_bytes(
        out + i, gray_lanes(load_interleaved(p), weights),
        gray_lanes(load_interleaved(p + 24), weights),
        gray_lanes(load_interleaved(p + 48), weights),
        gray_lanes(load_interleaved(p + 72), weights));
  }
  return i;
}

int64_t gray_planar(
    uint8_t* out, const uint8_t* red, const uint8_t* green, const uint8_t* blue, int64_t count,
    const FixedWeights& weights) {
  const auto gray_at = [&](int64_t at) __attribute__((always_inline)) {
    return gray_lanes(
        {load_plane(red + at), load_plane(green + at), load_plane(blue + at)}, weights);
  };
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    store_bytes(out + i, gray_at(i), gray_at(i + 8), gray_at(i + 16), gray_at(i + 24));
  }
  return i;
}

}  // namespace img2gray::avx2
#endif
