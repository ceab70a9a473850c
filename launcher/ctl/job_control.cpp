#include "launcher/ctl/job_control.hpp"

#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "launcher/ctl/control_socket.hpp"
#include "launcher/health/node_evidence.hpp"
#include "launcher/health/stack_clusters.hpp"

namespace cpprun::launcher {
namespace {

std::unique_ptr<ControlServer> serve(asio::io_context& io, const ControlPlace& place,
                                     ControlAnswers answers) {
  try {
    FileDescriptor listener = listen_at(place.folder);
    return std::make_unique<ControlServer>(io, std::move(listener), std::move(answers));
  } catch (const std::system_error& error) {
    spdlog::warn("cpprunctl cannot reach this run: no socket can be made at {}", error.what());
    return nullptr;
  }
}

}  // namespace

JobControl::JobControl(asio::io_context& io, const ControlPlace& place, JobStatus about,
                       const LocalRunner& runner, Health& health)
    : place_(place), about_(std::move(about)), runner_(runner), health_(health) {
  try {
    list_ = enter(place);
  } catch (const std::system_error& error) {
    const char* what = place.own_folder() ? "reach this run" : "list this run, only reach it by its folder";
    spdlog::warn("cpprunctl cannot {}: no entry can be made at {}", what, error.what());
    if (place.own_folder()) return;
  }
  ControlAnswers answers{[this] { return status(); }, [this] { return stacks(); }};
  server_ = serve(io, place, std::move(answers));
}

JobControl::~JobControl() {
  server_.reset();
  leave(place_);
}

awaitable<void> JobControl::run() {
  if (server_) co_await server_->run();
}

std::string JobControl::status() const {
  JobStatus status = about_;
  status.workers = runner_.statuses();
  if (agent_) {
    status.phase = agent_->phase();
    if (const rendezvous::RendezvousInfo* info = agent_->round()) {
      status.round =
          RoundStatus{info->round, info->restarts, info->group_rank, info->group_world_size, info->address};
    }
  }
  return to_json(status, std::chrono::system_clock::now());
}

awaitable<std::string> JobControl::stacks() {
  const Gathered gathered = co_await health_.gather_stacks("cpprunctl asks");
  co_return stacks_json(gathered);
}

std::string stacks_json(const Gathered& gathered) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const auto& [node, evidence] : gathered.by_node) {
    nlohmann::ordered_json told = nlohmann::ordered_json::parse(evidence, nullptr, false);
    if (told.is_discarded()) told = nullptr;
    nodes.push_back({{"group_rank", node}, {"evidence", std::move(told)}});
  }
  const std::string text = to_text(evidence_of_all(gathered.by_node));
  const nlohmann::ordered_json object = {{"text", text}, {"nodes", nodes}, {"missing", gathered.missing}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace cpprun::launcher
