#include "launcher/health/evidence_files.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <fstream>

namespace cpprun::launcher {

namespace fs = std::filesystem;

awaitable<void> write_evidence(fs::path attempt_folder, int request, Gathered gathered) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const fs::path folder = attempt_folder / ("evidence_" + std::to_string(request));
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  for (const auto& [node, evidence] : gathered.by_node) {
    const fs::path path = folder / ("node_" + std::to_string(node) + ".txt");
    std::ofstream file(path, std::ios::binary);
    if (!file.write(evidence.data(), static_cast<std::streamsize>(evidence.size())).flush()) {
      spdlog::warn("cannot write {}", path.string());
      co_return;
    }
    co_await asio::post(executor, asio::use_awaitable);
  }
}

}  // namespace cpprun::launcher
