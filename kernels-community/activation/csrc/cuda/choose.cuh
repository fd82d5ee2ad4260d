// From what a call says at run time to what device code is compiled for: a type and a function.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "launch.h"

namespace activation::cuda {

// Calls body<T>() for the type of the elements.
template <class Body>
cudaError_t with_type(Element element, const Body& body) {
  switch (element) {
    case Element::kFloat: return body.template operator()<float>();
    case Element::kBFloat16: return body.template operator()<__nv_bfloat16>();
    case Element::kHalf: return body.template operator()<__half>();
  }
  return cudaErrorInvalidValue;
}

// Calls body<T, kind>() if `kind` is one of `kinds`.
template <Activation... kinds, class Body>
cudaError_t with_function(Activation kind, Element element, const Body& body) {
  return with_type(element, [&]<class T>() {
    cudaError_t status = cudaErrorInvalidValue;
    static_cast<void>(
        ((kind == kinds && (status = body.template operator()<T, kinds>(), true)) || ...));
    return status;
  });
}

template <class Body>
cudaError_t with_unary(Activation kind, Element element, const Body& body) {
  return with_function<
      Activation::kGelu, Activation::kGeluTanh, Activation::kGeluQuick, Activation::kSilu>(
      kind, element, body);
}

template <class Body>
cudaError_t with_gated(Activation kind, Element element, const Body& body) {
  return with_function<
      Activation::kGelu, Activation::kGeluTanh, Activation::kSilu, Activation::kFatrelu>(
      kind, element, body);
}

}  // namespace activation::cuda
