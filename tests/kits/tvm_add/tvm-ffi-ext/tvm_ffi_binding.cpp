#include "add.h"

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_one, add_one);
