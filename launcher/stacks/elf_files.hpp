// The ELF files of a process's modules, as they can still be reached.
#pragma once

#include <libelf.h>

#include <cstdint>
#include <optional>

#include "launcher/stacks/process_capture.hpp"
#include "launcher/stacks/process_maps.hpp"

namespace cpprun::stacks {

struct OpenElf {
  Elf* elf = nullptr;  // null where the file cannot be had
  int fd = -1;
};

// Looks in the process's own view of the file system first. A file that was replaced since is found only
// where the kernel still gives it out. The caller ends `elf` and closes `fd`.
OpenElf open_elf(const Module& module, std::int32_t pid);

// The 8 bytes at `address` of a file loaded with `bias`, from a part that programs do not write to; nothing
// elsewhere.
std::optional<std::uint64_t> read_word(Elf* elf, std::uint64_t bias, std::uint64_t address);

}  // namespace cpprun::stacks
