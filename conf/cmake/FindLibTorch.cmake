# Finds LibTorch 2.15: ${LIBTORCH_ROOT}, or the wheel in ${CPPRUN_VENV}/lib/python3*/site-packages/torch.
#
#   LibTorch::cpu    headers, torch_cpu and c10: all that a worker links. Works with the wheel alone plus
#                    nvidia-cuda-runtime and nvidia-cuda-cupti, which torch_cpu itself is linked to.
#   LibTorch::cuda   additionally torch_cuda, c10_cuda and the headers of CUDA and NCCL; there only where the
#                    complete wheel is. For the CUDA plug-in alone: it costs 250 MB a process.
#
# LibTorch's own CMake package is not used: it wants a CUDA toolkit wherever the wheel was built for CUDA.

set(_libtorch_roots "${LIBTORCH_ROOT}")
if(NOT LIBTORCH_ROOT)
  file(GLOB _libtorch_roots "${CPPRUN_VENV}/lib/python3*/site-packages/torch")
endif()
set(_libtorch_root "")
foreach(_libtorch_candidate IN LISTS _libtorch_roots)
  if(EXISTS "${_libtorch_candidate}/lib/libtorch_cpu.so" AND EXISTS "${_libtorch_candidate}/include/torch")
    set(_libtorch_root "${_libtorch_candidate}")
  endif()
endforeach()
set(_libtorch_setup "run scripts/setup.sh, or name a virtual environment with the wheel in CPPRUN_VENV, or "
                    "configure with -DCPPRUN_WITH_TORCH=OFF to build the launcher half alone")
if(NOT _libtorch_root)
  if(LIBTORCH_ROOT)
    set(_libtorch_place "${LIBTORCH_ROOT} (LIBTORCH_ROOT)")
  else()
    set(_libtorch_place "${CPPRUN_VENV}/lib/python3*/site-packages/torch (CPPRUN_VENV)")
  endif()
  message(FATAL_ERROR "LibTorch 2.15 is not in ${_libtorch_place}: " ${_libtorch_setup} ".")
endif()

set(LibTorch_INCLUDE_DIR "${_libtorch_root}/include")

# c10d's headers change with every release, so no other than 2.15 compiles or can be trusted to behave.
file(STRINGS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h" _libtorch_numbers
     REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" LibTorch_VERSION "${_libtorch_numbers}")
string(REPLACE ";" "." LibTorch_VERSION "${LibTorch_VERSION}")
if(NOT LibTorch_VERSION MATCHES "^2\\.15\\.")
  message(FATAL_ERROR "LibTorch in ${LibTorch_INCLUDE_DIR} is version ${LibTorch_VERSION}, and cpprun needs 2.15: "
          ${_libtorch_setup} ".")
endif()

set(_libtorch_lib "${_libtorch_root}/lib")
cmake_path(GET _libtorch_root PARENT_PATH _libtorch_site)
file(GLOB _libtorch_nvidia "${_libtorch_site}/nvidia/*/lib")

if(NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  # The torch libraries carry run paths to NVIDIA's; the linker, which must see those too, does not follow them.
  set(_libtorch_flags "-Wl,-rpath,${_libtorch_lib}")
  foreach(_libtorch_folder IN LISTS _libtorch_nvidia)
    list(APPEND _libtorch_flags "-Wl,-rpath-link,${_libtorch_folder}")
  endforeach()
  # Operators register themselves when a library is loaded, so it must not be dropped as unused.
  target_link_libraries(LibTorch::cpu INTERFACE ${_libtorch_flags}
    "-Wl,--push-state,--no-as-needed,${_libtorch_lib}/libtorch_cpu.so,${_libtorch_lib}/libc10.so,--pop-state")
endif()

set(_libtorch_cuda_headers "${_libtorch_site}/nvidia/nccl/include" "${_libtorch_site}/nvidia/cu13/include")
if(NOT TARGET LibTorch::cuda AND EXISTS "${_libtorch_site}/nvidia/nccl/include/nccl.h"
   AND EXISTS "${_libtorch_site}/nvidia/cu13/include/cuda_runtime_api.h"
   AND EXISTS "${_libtorch_site}/nvidia/cu13/include/cusparse.h"
   AND EXISTS "${_libtorch_lib}/libtorch_cuda.so")
  file(GLOB _libtorch_cudart "${_libtorch_site}/nvidia/cu13/lib/libcudart.so*")
  add_library(LibTorch::cuda INTERFACE IMPORTED)
  target_include_directories(LibTorch::cuda SYSTEM INTERFACE ${_libtorch_cuda_headers})
  target_compile_definitions(LibTorch::cuda INTERFACE USE_C10D_NCCL)
  target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu
    "-Wl,--push-state,--no-as-needed,${_libtorch_lib}/libtorch_cuda.so,${_libtorch_lib}/libc10_cuda.so,--pop-state"
    ${_libtorch_cudart})
endif()

set(LibTorch_FOUND TRUE)
if(NOT LibTorch_FIND_QUIETLY AND NOT LibTorch_REPORTED)
  set(LibTorch_REPORTED TRUE CACHE INTERNAL "The line below was printed")
  if(TARGET LibTorch::cuda)
    message(STATUS "LibTorch ${LibTorch_VERSION} with CUDA: ${_libtorch_root}")
  else()
    message(STATUS "LibTorch ${LibTorch_VERSION} for the CPU: ${_libtorch_root}")
  endif()
endif()
