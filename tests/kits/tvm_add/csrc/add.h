#pragma once

#include <tvm/ffi/tvm_ffi.h>

// out = x + 1; float32, contiguous, of one length, on one device.
void add_one(tvm::ffi::TensorView x, tvm::ffi::TensorView out);

inline void check_pair(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const DLDataType kFloat32 = {kDLFloat, 32, 1};
  if (x.dtype() != kFloat32 || out.dtype() != kFloat32) {
    TVM_FFI_THROW(TypeError) << "expected float32 for x and out";
  }
  if (x.numel() != out.numel() || !x.IsContiguous() || !out.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "expected contiguous tensors of one length, found " << x.numel()
                              << " and " << out.numel() << " elements";
  }
}
