// A worker for scripts/bench/tee that writes a lot, and the check that all of it arrived.
//
//   output_worker write SHAPE BYTES READY GATE
//       BYTES bytes, half to stdout and half to stderr in turns of 64 KiB, once a byte came from the FIFO
//       GATE; writes a byte to the FIFO READY before.
//   output_worker check SHAPE BYTES STREAM CONSOLE LOG...
//       Exits 1 with a sentence unless LOG number r holds to the byte what rank r wrote to STREAM (0 stdout,
//       1 stderr), and CONSOLE every line of them once, in order, behind "[default<r>]:".
//
// Shapes: "lines" of 80 bytes, "short" lines of one character, "open" (64 KiB and more without a newline),
// "binary" (every byte value). What stands at an offset depends on the offset, so that a piece lost, doubled
// or moved is seen.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kBlock = 64 * 1024;
constexpr std::size_t kLine = 80;

using Block = std::array<char, kBlock>;
// Fills a block with what stands at `offset` of a stream; `stream` is different for each.
using Shape = std::function<void(Block& block, std::uint64_t offset, std::uint64_t stream)>;

void fill_lines(Block& block, std::uint64_t offset, std::uint64_t stream) {
  for (std::size_t at = 0; at < kBlock;) {
    const std::uint64_t number = (offset + at) / kLine;
    const std::size_t within = (offset + at) % kLine;
    std::array<char, kLine> line;
    line.fill(static_cast<char>('a' + stream));
    line.back() = '\n';
    std::to_chars(line.data(), line.data() + 20, number);
    const std::size_t length = std::min(kLine - within, kBlock - at);
    std::memcpy(block.data() + at, line.data() + within, length);
    at += length;
  }
}

void fill_short(Block& block, std::uint64_t offset, std::uint64_t stream) {
  std::uint64_t line = offset / 2 + stream;
  for (std::size_t at = 0; at < kBlock; at += 2, ++line) {
    block[at] = static_cast<char>('A' + line % 57);  // no divisor of a block's lines
    block[at + 1] = '\n';
  }
}

void fill_open(Block& block, std::uint64_t offset, std::uint64_t stream) {
  const std::uint64_t number = offset / kBlock + stream;
  for (std::size_t at = 0; at < kBlock; at += 64) {
    std::memset(block.data() + at, static_cast<int>('A' + (number + at / 64) % 57), 64);
  }
}

void fill_binary(Block& block, std::uint64_t offset, std::uint64_t stream) {
  for (std::size_t at = 0; at < kBlock; at += 8) {
    std::uint64_t mixed = (offset + at + (stream << 60)) * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9;
    std::memcpy(block.data() + at, &mixed, 8);
  }
}

[[noreturn]] void give_up(const std::string& sentence) {
  std::cerr << "output_worker: " << sentence << std::endl;
  std::exit(1);
}

Shape shape_of(const std::string& name) {
  if (name == "lines") return fill_lines;
  if (name == "short") return fill_short;
  if (name == "open") return fill_open;
  if (name == "binary") return fill_binary;
  give_up("no shape is called " + name);
}

void write_block(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) std::exit(1);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::uint64_t stream_number(int rank, int stream) {
  return static_cast<std::uint64_t>(2 * rank + stream);
}

void write_all(const Shape& shape, std::uint64_t bytes, const char* ready, const char* gate) {
  const int rank = std::atoi(std::getenv("RANK"));
  write_block(::open(ready, O_WRONLY), "r");
  char go;
  if (::read(::open(gate, O_RDONLY), &go, 1) != 1) give_up("the gate did not open");
  Block block;
  for (std::uint64_t offset = 0; offset < bytes / 2; offset += kBlock) {
    for (const int stream : {0, 1}) {
      shape(block, offset, stream_number(rank, stream));
      write_block(stream == 0 ? STDOUT_FILENO : STDERR_FILENO,
                  {block.data(), std::min<std::uint64_t>(kBlock, bytes / 2 - offset)});
    }
  }
}

std::string_view map_file(const char* path) {
  const int fd = ::open(path, O_RDONLY);
  struct stat about {};
  if (fd < 0 || ::fstat(fd, &about) != 0) give_up(std::string("cannot read ") + path);
  if (about.st_size == 0) return {};
  const std::size_t size = static_cast<std::size_t>(about.st_size);
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) give_up(std::string("cannot map ") + path);
  return {static_cast<const char*>(at), size};
}

void check_log(std::string_view log, const Shape& shape, std::uint64_t bytes, std::uint64_t stream) {
  if (log.size() != bytes) {
    give_up("a log holds " + std::to_string(log.size()) + " of " + std::to_string(bytes) + " bytes");
  }
  Block block;
  for (std::uint64_t offset = 0; offset < bytes; offset += kBlock) {
    shape(block, offset, stream);
    const std::string_view piece = log.substr(offset, kBlock);
    if (std::memcmp(piece.data(), block.data(), piece.size()) != 0) {
      give_up("a log differs near byte " + std::to_string(offset));
    }
  }
}

// The rank that a console's line belongs to; takes the prefix off.
std::size_t take_prefix(std::string_view& console, std::size_t ranks) {
  constexpr std::string_view kPrefix = "[default";
  if (console.substr(0, kPrefix.size()) == kPrefix) {
    std::size_t rank = ranks;
    const char* const digits = console.data() + kPrefix.size();
    const std::from_chars_result number = std::from_chars(digits, console.data() + console.size(), rank);
    const std::size_t length = static_cast<std::size_t>(number.ptr - console.data());
    if (rank < ranks && console.substr(length, 2) == "]:") {
      console.remove_prefix(length + 2);
      return rank;
    }
  }
  give_up("a line of the console has no prefix: " + std::string(console.substr(0, 100)));
}

// A line that the stream has not ended is ended on the console when another worker's line follows.
void check_console(std::string_view console, std::vector<std::string_view> logs) {
  while (!console.empty()) {
    std::string_view& log = logs[take_prefix(console, logs.size())];
    std::size_t end = 0;
    const std::size_t most = std::min(console.size(), log.size());
    while (end < most && console[end] == log[end] && log[end] != '\n' && log[end] != '\r') ++end;
    if (end < most && console[end] == log[end]) {
      ++end;
      if (log[end - 1] == '\r' && end < most && log[end] == '\n' && console[end] == '\n') ++end;
    }
    const bool ended = end > 0 && (log[end - 1] == '\n' || log[end - 1] == '\r');
    log.remove_prefix(end);
    console.remove_prefix(end);
    if (ended || console.empty()) continue;
    if (console.front() != '\n') {
      give_up("the console shows what was not written there: " + std::string(console.substr(0, 100)));
    }
    console.remove_prefix(1);
  }
  for (const std::string_view& log : logs) {
    if (!log.empty())
      give_up("the console lacks the last " + std::to_string(log.size()) + " bytes of a worker");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) give_up("see the head of tests/bench/output_worker.cpp for the arguments");
  const Shape shape = shape_of(argv[2]);
  const std::uint64_t bytes = std::strtoull(argv[3], nullptr, 10);
  if (std::string_view(argv[1]) == "write") {
    write_all(shape, bytes, argv[4], argv[5]);
    return 0;
  }
  const int stream = std::atoi(argv[4]);
  std::vector<std::string_view> logs;
  for (int rank = 0; rank + 6 < argc; ++rank) {
    logs.push_back(map_file(argv[rank + 6]));
    check_log(logs.back(), shape, bytes / 2, stream_number(rank, stream));
  }
  check_console(map_file(argv[5]), logs);
  return 0;
}
