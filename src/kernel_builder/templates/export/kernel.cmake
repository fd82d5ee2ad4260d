# Written by kernel-builder from build.toml: write it again rather than changing it.
#
# Finds Python, torch and CUDA, and has the functions that CMakeLists.txt calls. It is configured by
#   KERNEL_BACKEND          what to build; empty: what the installed torch is for
#   CMAKE_CUDA_COMPILER     nvcc; else CUDACXX, CUDA_HOME/bin/nvcc, and the PATH
#   KERNEL_INCLUDE_<name>   where the headers of a native dependency are, also in the environment

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "kernels are built on Linux so far, found ${CMAKE_SYSTEM_NAME}")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_SKIP_RPATH ON)
set(KERNEL_BACKEND "" CACHE STRING "What to build; empty: what the installed torch is for")
set(KERNEL_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")
set(KERNEL_PACKAGE_DIR "${CMAKE_BINARY_DIR}/package/${KERNEL_MODULE}")

# A stale CMakeLists.txt would build something other than build.toml says.
if(EXISTS "${CMAKE_SOURCE_DIR}/build.toml")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/build.toml")
  file(SHA256 "${CMAKE_SOURCE_DIR}/build.toml" kernel_found)
  if(NOT kernel_found STREQUAL KERNEL_BUILD_TOML)
    message(WARNING "build.toml is not what CMakeLists.txt was written from; write it again: "
                    "kernel-builder create-pyproject")
  endif()
endif()

find_package(Python 3.9 REQUIRED COMPONENTS Interpreter)
string(REPLACE ";" "," kernel_backends "${KERNEL_BACKENDS}")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${KERNEL_CMAKE_DIR}/environment.py" "${kernel_backends}"
          "${KERNEL_BACKEND}" "${KERNEL_FRAMEWORK}"
  OUTPUT_VARIABLE kernel_facts
  ERROR_VARIABLE kernel_error
  RESULT_VARIABLE kernel_result)
if(NOT kernel_result EQUAL 0)
  message(FATAL_ERROR "${kernel_error}")
endif()
foreach(kernel_name IN ITEMS backend root include version release cuda python_include)
  string(JSON KERNEL_HERE_${kernel_name} GET "${kernel_facts}" ${kernel_name})
endforeach()
set(KERNEL_CHOSEN "${KERNEL_HERE_backend}")
message(STATUS "Backend ${KERNEL_CHOSEN}, ${KERNEL_FRAMEWORK} ${KERNEL_HERE_version} in ${KERNEL_HERE_root}")

if(KERNEL_FRAMEWORK STREQUAL "tvm-ffi" OR KERNEL_HERE_release VERSION_LESS KERNEL_CXX20_SINCE)
  set(KERNEL_STANDARD 17)
else()
  set(KERNEL_STANDARD 20)
endif()

if(KERNEL_CHOSEN STREQUAL "cuda" AND "cuda" IN_LIST KERNEL_COMPILED)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin"
                 PATHS /usr/local/cuda/bin)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "nvcc not found: looked at CUDACXX, in CUDA_HOME/bin and on the PATH. "
        "Install a CUDA toolkit, or run this in: kernel-builder devshell")
    endif()
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  # A toolkit from wheels has its libraries where nvcc does not look.
  foreach(kernel_nvcc IN ITEMS "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}")
    get_filename_component(kernel_nvcc "${kernel_nvcc}" REALPATH)
    get_filename_component(kernel_root "${kernel_nvcc}" DIRECTORY)
    get_filename_component(kernel_root "${kernel_root}" DIRECTORY)
    if(EXISTS "${kernel_root}/lib/libcudart_static.a" AND NOT EXISTS "${kernel_root}/lib64")
      set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} \"-L${kernel_root}/lib\"")
    endif()
  endforeach()
  # Every file names its own architectures.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  set(KERNEL_CUDA_STANDARD ${KERNEL_STANDARD})
  if(KERNEL_STANDARD GREATER 17 AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
    message(FATAL_ERROR "the headers of torch ${KERNEL_HERE_version} need C++${KERNEL_STANDARD}, which "
      "nvcc has since CUDA 12.0; found ${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_COMPILER}")
  endif()
  # Flags that change no result are for an nvcc that knows them.
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --help OUTPUT_VARIABLE kernel_help)
  foreach(name IN ITEMS compress-mode frandom-seed split-compile static-global-template-stub)
    string(REGEX MATCH "\n--${name}[ \n]" KERNEL_NVCC_${name} "${kernel_help}")
    if(KERNEL_NVCC_${name})
      set(KERNEL_NVCC_${name} TRUE)
    endif()
  endforeach()
  string(REGEX MATCH "^[0-9]+" KERNEL_CUDA_MAJOR "${CMAKE_CUDA_COMPILER_VERSION}")
  if(KERNEL_HERE_cuda AND NOT KERNEL_HERE_cuda MATCHES "^${KERNEL_CUDA_MAJOR}[.]")
    message(FATAL_ERROR "the torch here is for CUDA ${KERNEL_HERE_cuda}, and "
      "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}: the kernel could not be "
      "loaded beside it. Use a toolkit ${KERNEL_HERE_cuda}, or a torch for CUDA "
      "${KERNEL_CUDA_MAJOR}")
  endif()
endif()

# Fails where the installed torch cannot be built against.
#   kernel_require_torch(STABLE_ABI <version>)
#   kernel_require_torch([MINVER <version>] [MAXVER <version>])
function(kernel_require_torch)
  cmake_parse_arguments(ARG "" "STABLE_ABI;MINVER;MAXVER" "" ${ARGN})
  set(found "found torch ${KERNEL_HERE_version} in ${KERNEL_HERE_root}")
  if(ARG_STABLE_ABI)
    if(KERNEL_HERE_release VERSION_LESS ARG_STABLE_ABI)
      message(FATAL_ERROR "torch ${ARG_STABLE_ABI} or newer is needed for its stable ABI, ${found}")
    endif()
    return()
  endif()
  if(ARG_MINVER AND KERNEL_HERE_release VERSION_LESS ARG_MINVER)
    message(FATAL_ERROR "torch ${ARG_MINVER} or newer is needed (torch.minver), ${found}")
  endif()
  if(ARG_MAXVER AND KERNEL_HERE_release VERSION_GREATER ARG_MAXVER)
    message(FATAL_ERROR "torch ${ARG_MAXVER} or older is needed (torch.maxver), ${found}")
  endif()
  if(KERNEL_CHOSEN STREQUAL "cuda" AND NOT KERNEL_HERE_cuda)
    message(FATAL_ERROR "the sources use torch's full C++ interface, and for CUDA that is only in "
      "a torch for CUDA, ${found}. Install a torch for CUDA, or use the stable interface "
      "(torch/csrc/stable), which needs no such torch")
  endif()
endfunction()

# Fails where the installed TVM FFI is of another minor version.
#   kernel_require_tvm_ffi(<version>)
function(kernel_require_tvm_ffi version)
  if(NOT KERNEL_HERE_release VERSION_EQUAL version)
    message(FATAL_ERROR "TVM FFI ${version} is needed, found ${KERNEL_HERE_version} in "
      "${KERNEL_HERE_root}; install it: pip install 'apache-tvm-ffi==${version}.*'")
  endif()
endfunction()

# Fails where the CUDA toolkit is none of those that build.toml names.
#   kernel_require_cuda([MINVER <version>] [MAXVER <version>])
function(kernel_require_cuda)
  cmake_parse_arguments(ARG "" "MINVER;MAXVER" "" ${ARGN})
  string(REGEX MATCH "^[0-9]+[.][0-9]+" release "${CMAKE_CUDA_COMPILER_VERSION}")
  set(found "found ${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_COMPILER}")
  if(ARG_MINVER AND release VERSION_LESS ARG_MINVER)
    message(FATAL_ERROR "CUDA ${ARG_MINVER} or newer is needed (general.cuda.minver), ${found}")
  endif()
  if(ARG_MAXVER AND release VERSION_GREATER ARG_MAXVER)
    message(FATAL_ERROR "CUDA ${ARG_MAXVER} or older is needed (general.cuda.maxver), ${found}")
  endif()
endfunction()

# Adds the library: for torch a Python module too, for TVM FFI one that it loads.
#   kernel_library(<op id> TORCH <library>... [DEPENDS <name>...])
#   kernel_library(<op id> TVM_FFI <library>... [DEPENDS <name>...])
function(kernel_library op_id)
  cmake_parse_arguments(ARG "" "" "TORCH;TVM_FFI;DEPENDS" ${ARGN})
  set(include ${KERNEL_HERE_include})
  if(ARG_TVM_FFI)
    set(suffix ".so")
    set(name TVM_FFI_EXTENSION_NAME)
    set(label tvm-ffi)
  else()
    set(suffix ".abi3.so")
    set(name TORCH_EXTENSION_NAME)
    set(label torch)
    list(APPEND include "${KERNEL_HERE_python_include}")
  endif()
  add_library(${op_id} MODULE)
  set_target_properties(${op_id} PROPERTIES
    PREFIX ""
    SUFFIX "${suffix}"
    LIBRARY_OUTPUT_DIRECTORY "${KERNEL_PACKAGE_DIR}"
    LINKER_LANGUAGE CXX
    CXX_STANDARD ${KERNEL_STANDARD}
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CUDA_ARCHITECTURES OFF
    CUDA_RUNTIME_LIBRARY None)
  if(KERNEL_CHOSEN STREQUAL "cuda")
    set_target_properties(${op_id} PROPERTIES
      CUDA_STANDARD ${KERNEL_CUDA_STANDARD}
      CUDA_STANDARD_REQUIRED ON
      CUDA_EXTENSIONS OFF)
  endif()
  target_compile_definitions(${op_id} PRIVATE ${name}=${op_id})
  target_include_directories(${op_id} SYSTEM PRIVATE
    ${include}
    ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  foreach(name IN LISTS ARG_DEPENDS)
    set(place ${KERNEL_INCLUDE_${name}})
    if(NOT place)
      file(TO_CMAKE_PATH "$ENV{KERNEL_INCLUDE_${name}}" place)
    endif()
    if(NOT place)
      message(FATAL_ERROR "the headers of ${name} are needed: pass "
        "-DKERNEL_INCLUDE_${name}=<directory>, or run this in: kernel-builder devshell")
    endif()
    target_include_directories(${op_id} SYSTEM PRIVATE ${place})
  endforeach()
  # Quoted includes start at the project, and no path of this machine gets into the objects.
  set(place "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "," "\\," for_nvcc "${place}")
  target_compile_options(${op_id} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-iquote${place}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=\"-iquote${for_nvcc}\">")
  foreach(map IN ITEMS "${place}/=" "${KERNEL_HERE_root}=${label}"
                       "${KERNEL_HERE_python_include}=python")
    string(REPLACE "," "\\," for_nvcc "${map}")
    target_compile_options(${op_id} PRIVATE
      "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-ffile-prefix-map=${map}>"
      "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CUDA>>:-Xcompiler=\"-ffile-prefix-map=${for_nvcc}\">")
  endforeach()

  foreach(name IN LISTS ARG_TORCH ARG_TVM_FFI)
    target_link_libraries(${op_id} PRIVATE "${KERNEL_HERE_root}/lib/lib${name}.so")
  endforeach()
  # Named without its directory, in which a comma would part the linker's words.
  configure_file("${KERNEL_CMAKE_DIR}/exports.map" "${CMAKE_BINARY_DIR}/exports.map" COPYONLY)
  set_property(TARGET ${op_id} PROPERTY LINK_DEPENDS "${CMAKE_BINARY_DIR}/exports.map")
  target_link_options(${op_id} PRIVATE
    "LINKER:--no-as-needed" "LINKER:--gc-sections" "LINKER:--exclude-libs,ALL"
    "LINKER:-z,noexecstack" "LINKER:-z,relro" "LINKER:--version-script=exports.map"
    "$<$<CONFIG:Release>:LINKER:--strip-debug>")
  if(KERNEL_CHOSEN STREQUAL "cuda")
    # Where nvcc looks; else beside it, as installers and Debian lay a toolkit out.
    get_filename_component(root "${CMAKE_CUDA_COMPILER}" DIRECTORY)
    get_filename_component(root "${root}" DIRECTORY)
    find_file(kernel_cudart libcudart.so.${KERNEL_CUDA_MAJOR} REQUIRED NO_CACHE
      HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} "${root}/lib64" "${root}/lib"
        "${root}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib" "${root}/lib/${CMAKE_LIBRARY_ARCHITECTURE}"
      NO_DEFAULT_PATH)
    target_link_libraries(${op_id} PRIVATE "${kernel_cudart}")
    # Where torch has no GPU code the library can still be loaded and its ops looked at.
    target_link_options(${op_id} PRIVATE "LINKER:-z,lazy")
  endif()
  install(TARGETS ${op_id} LIBRARY DESTINATION "${KERNEL_MODULE}" COMPONENT library)
endfunction()

# Puts the Python side beside the library: <build>/package can be put on PYTHONPATH, and
# cmake --install puts the whole package into a directory.
function(kernel_package)
  set(copies "")
  foreach(file IN LISTS KERNEL_PYTHON_FILES)
    set(source "${CMAKE_CURRENT_SOURCE_DIR}/${KERNEL_EXTENSION}/${KERNEL_MODULE}/${file}")
    add_custom_command(
      OUTPUT "${KERNEL_PACKAGE_DIR}/${file}"
      COMMAND "${CMAKE_COMMAND}" -E copy "${source}" "${KERNEL_PACKAGE_DIR}/${file}"
      DEPENDS "${source}"
      VERBATIM)
    list(APPEND copies "${KERNEL_PACKAGE_DIR}/${file}")
    get_filename_component(folder "${file}" DIRECTORY)
    install(FILES "${source}" DESTINATION "${KERNEL_MODULE}/${folder}" COMPONENT python)
  endforeach()
  add_custom_target(${KERNEL_MODULE}_python ALL DEPENDS ${copies})
  set(ops "${KERNEL_CMAKE_DIR}/ops/${KERNEL_CHOSEN}.py")
  configure_file("${ops}" "${KERNEL_PACKAGE_DIR}/_ops.py" COPYONLY)
  install(FILES "${ops}" DESTINATION "${KERNEL_MODULE}" RENAME _ops.py COMPONENT library)
endfunction()
