#include "launcher/stacks/process_maps.hpp"

#include <algorithm>
#include <charconv>

namespace cpprun::stacks {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

// Reads a number in base 16 from the front, and drops it with the character behind it.
std::optional<std::uint64_t> take_hex(std::string_view& text) {
  std::uint64_t value = 0;
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (result.ec != std::errc() || result.ptr == text.data() + text.size()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()) + 1);
  return value;
}

void skip_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find(' '), text.size()));
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
}

// "7f00-7f10 r-xp 00001000 fe:00 123    /usr/lib/x.so"
std::optional<Mapping> parse_line(std::string_view line) {
  Mapping mapping;
  const std::optional<std::uint64_t> start = take_hex(line);
  const std::optional<std::uint64_t> end = start ? take_hex(line) : std::nullopt;
  if (!end || *end <= *start || line.size() < 5) return std::nullopt;
  mapping.start = *start;
  mapping.end = *end;
  mapping.readable = line[0] == 'r';
  mapping.writable = line[1] == 'w';
  mapping.executable = line[2] == 'x';
  line.remove_prefix(5);
  const std::optional<std::uint64_t> offset = take_hex(line);
  if (!offset) return std::nullopt;
  mapping.offset = *offset;
  skip_word(line);  // the device
  skip_word(line);  // the inode
  mapping.path = line;
  return mapping;
}

bool is_file(const std::string& path) {
  return !path.empty() && path.front() == '/';
}

}  // namespace

std::vector<Mapping> parse_maps(std::string_view text) {
  std::vector<Mapping> maps;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (std::optional<Mapping> mapping = parse_line(line)) maps.push_back(std::move(*mapping));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  const auto by_start = [](const Mapping& a, const Mapping& b) { return a.start < b.start; };
  if (!std::is_sorted(maps.begin(), maps.end(), by_start)) std::sort(maps.begin(), maps.end(), by_start);
  return maps;
}

const Mapping* find_mapping(const std::vector<Mapping>& maps, std::uint64_t address) {
  const auto after =
      std::upper_bound(maps.begin(), maps.end(), address,
                       [](std::uint64_t wanted, const Mapping& mapping) { return wanted < mapping.start; });
  if (after == maps.begin()) return nullptr;
  const Mapping& mapping = *std::prev(after);
  return address < mapping.end ? &mapping : nullptr;
}

std::vector<Module> code_modules(const std::vector<Mapping>& maps) {
  std::vector<Module> modules;
  bool executable = false;
  std::string path;  // of the module at the back
  const auto finish = [&] {
    if (!path.empty() && !executable) modules.pop_back();
    path.clear();
    executable = false;
  };
  for (const Mapping& mapping : maps) {
    if (!is_file(mapping.path) && mapping.path != "[vdso]") continue;
    // A file mapped a second time begins at its start again.
    if (mapping.path != path || mapping.offset == 0) {
      finish();
      path = mapping.path;
      Module module{path, false, mapping.start, mapping.end, mapping.end};
      if (path.ends_with(kDeleted)) {
        module.deleted = true;
        module.path.resize(path.size() - kDeleted.size());
      }
      modules.push_back(std::move(module));
    }
    modules.back().end = mapping.end;
    executable = executable || mapping.executable;
  }
  finish();
  return modules;
}

}  // namespace cpprun::stacks
