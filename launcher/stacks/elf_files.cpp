#include "launcher/stacks/elf_files.hpp"

#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace cpprun::stacks {
namespace {

std::vector<std::string> places_of(const Module& module, std::int32_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  char range[64];
  std::snprintf(range, sizeof range, "/map_files/%llx-%llx", static_cast<unsigned long long>(module.start),
                static_cast<unsigned long long>(module.first_end));
  if (module.deleted) return {process + range};
  return {process + "/root" + module.path, module.path};
}

// Looks before it opens: opening a device can do anything.
int open_regular(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return -1;
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

OpenElf open_elf(const Module& module, std::int32_t pid) {
  for (const std::string& place : places_of(module, pid)) {
    const int fd = open_regular(place);
    if (fd < 0) continue;
    // A mapping for reading only does not count as memory of ours.
    Elf* elf = ::elf_begin(fd, ELF_C_READ_MMAP, nullptr);
    if (elf && ::elf_kind(elf) == ELF_K_ELF) return {elf, fd};
    ::elf_end(elf);
    ::close(fd);
  }
  return {};
}

std::optional<std::uint64_t> read_word(Elf* elf, std::uint64_t bias, std::uint64_t address) {
  std::size_t headers = 0;
  std::size_t size = 0;
  const char* file = ::elf_rawfile(elf, &size);
  if (!file || ::elf_getphdrnum(elf, &headers) != 0) return std::nullopt;
  const std::uint64_t wanted = address - bias;
  for (std::size_t i = 0; i < headers; ++i) {
    GElf_Phdr header;
    if (!::gelf_getphdr(elf, static_cast<int>(i), &header) || header.p_type != PT_LOAD) continue;
    const bool inside =
        wanted >= header.p_vaddr && header.p_filesz >= 8 && wanted - header.p_vaddr <= header.p_filesz - 8;
    if (!inside || (header.p_flags & PF_W) != 0) continue;
    const std::uint64_t at = header.p_offset + (wanted - header.p_vaddr);
    if (size < 8 || at > size - 8) return std::nullopt;
    std::uint64_t word = 0;
    std::memcpy(&word, file + at, sizeof word);
    return word;
  }
  return std::nullopt;
}

}  // namespace cpprun::stacks
