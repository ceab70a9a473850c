# How every target of the project is compiled, and where its outputs lie.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# Built files get the run path of installed ones: the folders of libraries outside the project, as no program is
# linked to a shared library inside it. A run path that CMake rewrites at installation would carry a trailing ':'
# until then and a leading one after, which is the current folder to the loader.
set(CMAKE_BUILD_WITH_INSTALL_RPATH TRUE)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH TRUE)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for where precompiled headers are used; the headers' contents are
  # still compared. Paths relative to the source folder let a clone in another folder share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${CCACHE_PROGRAM}")
endif()

# Every target of ours: one include root (the project), one set of warnings, sanitizers where asked for.
add_library(cpprun_options INTERFACE)
target_include_directories(cpprun_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(cpprun_options INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(cpprun_options INTERFACE -Wno-restrict)  # wrong on "text" + std::string: GCC bug 105651
endif()
if(CPPRUN_WERROR)
  target_compile_options(cpprun_options INTERFACE -Werror)
endif()
if(CPPRUN_SANITIZE)
  # The vptr check opens a pipe of its own, and is wrong where a test has used up the open files.
  target_compile_options(cpprun_options INTERFACE -fsanitize=address,undefined -fno-sanitize=vptr
                         -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer)
  target_link_options(cpprun_options INTERFACE -fsanitize=address,undefined -fno-sanitize=vptr)
endif()

# cpprun_test(NAME SOURCES file... LIBRARIES target... [TIMEOUT seconds] [LABELS label...])
# One GoogleTest program, one ctest entry. ctest's own time-out is the only clock a test has.
function(cpprun_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBRARIES} cpprun_options GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT})
  if(T_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}")
  endif()
endfunction()

# cpprun_script_test(NAME SCRIPT file.py [TIMEOUT seconds] [LABELS label...] [ARGS arg...] [PYTHON path])
# One standard-library Python test file that runs the real binaries. CPPRUN_BIN_DIR names their folder and
# CPPRUN_VENV the virtual environment.
function(cpprun_script_test name)
  cmake_parse_arguments(T "RUN_SERIAL" "TIMEOUT;SCRIPT;PYTHON" "ARGS;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(NOT T_PYTHON)
    set(T_PYTHON "${Python3_EXECUTABLE}")
  endif()
  add_test(NAME ${name} COMMAND "${T_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/${T_SCRIPT}" ${T_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} RUN_SERIAL "${T_RUN_SERIAL}"
    ENVIRONMENT "CPPRUN_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};CPPRUN_VENV=${CPPRUN_VENV};CPPRUN_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  if(T_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}")
  endif()
endfunction()

include(CheckHeaders)
