#include "launcher/stacks/process_capture.hpp"

#include <array>
#include <cstddef>

namespace cpprun::stacks {
namespace {

constexpr std::string_view kMagic = "CPPRSTK1";
// A count takes at least this many bytes an element, so a false one is found out before memory is taken.
constexpr std::size_t kSmallestElement = 8;

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void number(std::uint64_t value) {
    std::array<char, 8> bytes{};
    for (char& byte : bytes) {
      byte = static_cast<char>(value & 0xff);
      value >>= 8;
    }
    out_.append(bytes.data(), bytes.size());
  }
  void text(std::string_view value) {
    number(value.size());
    out_.append(value);
  }
  void region(const MemoryRegion& region) {
    number(region.start);
    text(region.bytes);
  }

 private:
  std::string& out_;
};

// After the first fault every answer is empty, and failed() says so.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::uint64_t number() {
    const std::string_view bytes = take(8);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string text() { return std::string(take(number())); }
  std::size_t count() {
    const std::uint64_t value = number();
    if (value > rest_.size() / kSmallestElement) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(value);
  }
  MemoryRegion region() {
    MemoryRegion region;
    region.start = number();
    region.bytes = text();
    return region;
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) failed_ = true;
    if (failed_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

CapturedThread read_thread(Reader& reader) {
  CapturedThread thread;
  thread.tid = static_cast<std::int32_t>(reader.number());
  thread.pc = reader.number();
  const std::size_t registers = reader.count();
  for (std::size_t i = 0; i < registers && !reader.failed(); ++i) {
    const std::uint32_t number = static_cast<std::uint32_t>(reader.number());
    thread.registers.push_back({number, reader.number()});
  }
  thread.stack = reader.region();
  return thread;
}

std::size_t encoded_size(const ProcessCapture& capture) {
  std::size_t size = 4096 + capture.maps.size();
  for (const MemoryRegion& region : capture.memory) size += 64 + region.bytes.size();
  for (const CapturedThread& thread : capture.threads) size += 1024 + thread.stack.bytes.size();
  return size;
}

}  // namespace

bool MemoryRegion::holds(std::uint64_t address, std::size_t size) const {
  return address >= start && size <= bytes.size() && address - start <= bytes.size() - size;
}

std::string encode(const ProcessCapture& capture) {
  std::string out;
  out.reserve(encoded_size(capture));
  out.append(kMagic);
  Writer writer(out);
  writer.number(static_cast<std::uint64_t>(capture.pid));
  writer.text(capture.maps);
  writer.number(capture.memory.size());
  for (const MemoryRegion& region : capture.memory) writer.region(region);
  writer.number(capture.threads.size());
  for (const CapturedThread& thread : capture.threads) {
    writer.number(static_cast<std::uint64_t>(thread.tid));
    writer.number(thread.pc);
    writer.number(thread.registers.size());
    for (const Register& one : thread.registers) {
      writer.number(one.number);
      writer.number(one.value);
    }
    writer.region(thread.stack);
  }
  return out;
}

std::optional<ProcessCapture> decode(std::string_view text) {
  Reader reader(text);
  if (reader.take(kMagic.size()) != kMagic) return std::nullopt;
  ProcessCapture capture;
  capture.pid = static_cast<std::int32_t>(reader.number());
  capture.maps = reader.text();
  const std::size_t regions = reader.count();
  for (std::size_t i = 0; i < regions && !reader.failed(); ++i) capture.memory.push_back(reader.region());
  const std::size_t threads = reader.count();
  for (std::size_t i = 0; i < threads && !reader.failed(); ++i)
    capture.threads.push_back(read_thread(reader));
  if (reader.failed() || !reader.at_end()) return std::nullopt;
  return capture;
}

}  // namespace cpprun::stacks
