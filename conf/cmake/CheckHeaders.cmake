# Target check_headers: compiles headers of the launcher half alone, and twice in one file, so that none leans on
# what happens to be included before it. Only those without a .cpp of the same name: scripts/check_layers.py sees to
# it that the others are the first include of theirs. Not part of `all`; scripts/check.sh builds it.

set(_check_headers_sources)
foreach(_folder IN ITEMS launcher rendezvous worker_runtime/contract)
  file(GLOB_RECURSE _headers CONFIGURE_DEPENDS
       RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/${_folder}/*.hpp")
  foreach(_header IN LISTS _headers)
    string(REGEX REPLACE "hpp$" "cpp" _own_source "${_header}")
    if(EXISTS "${PROJECT_SOURCE_DIR}/${_own_source}")
      continue()
    endif()
    set(_source "${PROJECT_BINARY_DIR}/check_headers/${_header}.cpp")
    file(CONFIGURE OUTPUT "${_source}" CONTENT "#include \"${_header}\"\n#include \"${_header}\"\n")
    list(APPEND _check_headers_sources "${_source}")
  endforeach()
endforeach()
add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${_check_headers_sources})
target_link_libraries(check_headers PRIVATE cpprun_options Boost::boost spdlog::spdlog nlohmann_json::nlohmann_json)
target_compile_options(check_headers PRIVATE -O0)
