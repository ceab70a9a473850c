#include "trainer/thread_waiting.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace cpprun::trainer {

void wait_without_spinning(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string_view(threads) == "1") return;
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0) != 0) return;
  execv(program.c_str(), argv);
}

}  // namespace cpprun::trainer
