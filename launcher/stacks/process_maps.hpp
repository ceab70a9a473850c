// The address space of a process, as /proc/<pid>/maps tells of it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cpprun::stacks {

struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  std::uint64_t offset = 0;  // in the file
  std::string path;          // may be empty, or a name such as "[vdso]"
};

// In the order of addresses. Lines that are no mapping are left out.
std::vector<Mapping> parse_maps(std::string_view text);

// The one that holds `address`, or null. `maps` in the order of addresses.
const Mapping* find_mapping(const std::vector<Mapping>& maps, std::uint64_t address);

// A file that code runs from: the addresses from its first to its last mapping.
struct Module {
  std::string path;      // as the process sees it; without " (deleted)"
  bool deleted = false;  // another file may stand at `path` now, or none
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  // The first mapping, by which /proc/<pid>/map_files names the file.
  std::uint64_t first_end = 0;
};

// Files with an executable mapping, and the vDSO; data that is only mapped is left out.
std::vector<Module> code_modules(const std::vector<Mapping>& maps);

}  // namespace cpprun::stacks
