// Macros for the file that registers a kernel's ops. kernel-builder puts this header on the include
// path and defines TORCH_EXTENSION_NAME as the namespace of the ops, which is unique to their
// sources:
//
//     #include <torch/csrc/stable/library.h>   // or torch/library.h for the full interface
//     #include "registration.h"
//
//     STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
//       ops.def("add_one(Tensor! out, Tensor input) -> ()");
//     }
//     REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
#pragma once

#include <Python.h>

// torch's macros paste their first argument, which keeps it from being expanded. These pass it on
// once, so that a macro such as TORCH_EXTENSION_NAME stands for its value.
#define TORCH_LIBRARY_EXPAND(NAME, LIBRARY) TORCH_LIBRARY(NAME, LIBRARY)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, LIBRARY) TORCH_LIBRARY_IMPL(NAME, DEVICE, LIBRARY)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, LIBRARY) STABLE_TORCH_LIBRARY(NAME, LIBRARY)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, LIBRARY) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, LIBRARY)

#define KERNEL_PASTE_(A, B) A##B
#define KERNEL_PASTE(A, B) KERNEL_PASTE_(A, B)
#define KERNEL_QUOTE_(A) #A
#define KERNEL_QUOTE(A) KERNEL_QUOTE_(A)

// The full name of an op of this kernel, by which C++ finds it in torch's dispatcher:
// c10::Dispatcher::singleton().findSchemaOrThrow(KERNEL_OP("add_one"), "").
#define KERNEL_OP(NAME) KERNEL_QUOTE(TORCH_EXTENSION_NAME) "::" NAME

// Makes the library an (empty) Python module: importing it registers the ops. Only Python's stable
// ABI is used, so one library serves every Python from 3.9 on.
#define REGISTER_EXTENSION(NAME)                               \
  PyMODINIT_FUNC KERNEL_PASTE(PyInit_, NAME)(void) {           \
    static PyModuleDef_Slot slots[] = {{0, nullptr}};          \
    static PyModuleDef module = {PyModuleDef_HEAD_INIT,        \
                                 KERNEL_QUOTE(NAME),           \
                                 nullptr,                      \
                                 0,                            \
                                 nullptr,                      \
                                 slots,                        \
                                 nullptr,                      \
                                 nullptr,                      \
                                 nullptr};                     \
    return PyModuleDef_Init(&module);                          \
  }
