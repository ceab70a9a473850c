#include "launcher/vital_task.hpp"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "launcher/launch.hpp"
#include "rendezvous/async/deadline.hpp"
#include "rendezvous/error_text.hpp"

namespace cpprun::launcher {

awaitable<void> vital(awaitable<void> task) {
  try {
    co_await std::move(task);
  } catch (const std::exception& error) {
    if (async::is_cancellation(std::current_exception())) throw;
    spdlog::error("the agent cannot go on: {}", rendezvous::error_text(error));
    spdlog::default_logger()->flush();
    std::_Exit(kSystemRefused);
  }
}

}  // namespace cpprun::launcher
