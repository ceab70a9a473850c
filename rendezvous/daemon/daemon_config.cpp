#include "rendezvous/daemon/daemon_config.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/config_file.hpp"
#include "rendezvous/rendezvous_settings.hpp"

namespace cpprun::rendezvous {
namespace {

constexpr double kMostSeconds = 1e9;

// Throws ConfigError.
BindAddress parse_bind(const std::string& option, const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return ConfigError(
        option + ": '" + text + "' " + why +
        "; give ADDRESS:PORT, such as 10.0.0.1:29400, [::1]:29400, or *:29400 for every interface");
  };
  const bool every = text.starts_with("*:");
  Endpoint endpoint;
  try {
    endpoint = parse_endpoint(every ? "[::]" + text.substr(1) : text);
  } catch (const SettingsError& error) {
    throw wrong(std::string("is no address (") + error.what() + ")");
  }
  if (!endpoint.port) throw wrong("names no port");
  if (every) return {std::nullopt, *endpoint.port};
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(endpoint.host, error);
  if (error) throw wrong("has no numeric address");
  return {address, *endpoint.port};
}

bool is_store_name(std::string_view name) {
  constexpr std::size_t kMost = 64;
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= kMost && name.find_first_not_of(kLetters) == std::string_view::npos;
}

// Throws ConfigError.
NamedStore parse_store(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return ConfigError("--store: '" + text + "' " + why + "; give NAME=PORT, such as run7=29500");
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) throw wrong("names no port");
  NamedStore store{text.substr(0, equals), 0};
  if (!is_store_name(store.name))
    throw wrong("has no name of 1 to 64 letters, digits, dots, underscores and hyphens");
  const char* end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data() + equals + 1, end, store.port);
  if (read.ec != std::errc() || read.ptr != end) throw wrong("has no port from 0 to 65535");
  return store;
}

std::vector<NamedStore> parse_stores(const std::vector<std::string>& texts) {
  std::vector<NamedStore> stores;
  for (const std::string& text : texts) {
    const NamedStore store = parse_store(text);
    const auto same = [&](const NamedStore& other) { return other.name == store.name; };
    if (std::any_of(stores.begin(), stores.end(), same))
      throw ConfigError("--store: there are two stores of the name '" + store.name + "'; give each its own");
    stores.push_back(store);
  }
  return stores;
}

std::chrono::milliseconds to_milliseconds(const std::string& option, double seconds) {
  // Also what is no number at all, which a range does not exclude.
  if (!(seconds >= 0 && seconds <= kMostSeconds))
    throw ConfigError(option + " must be a number of seconds, 0 or more");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(seconds * 1000)));
}

// The file's entries become the values of those options that the command line lacks.
void apply_file(CLI::App& app, const std::string& file) {
  std::set<std::string> seen;
  for (const FileValue& value : parse_config(read_config_file(file), file)) {
    const std::string where = file + ", line " + std::to_string(value.line) + ": the key '" + value.key + "'";
    CLI::Option* option = value.key == "config" ? nullptr : app.get_option_no_throw("--" + value.key);
    if (!option || !option->get_configurable())
      throw ConfigError(where + " is no option; see cpprund --help");
    if (!seen.insert(value.key).second) throw ConfigError(where + " is there twice");
    const bool list = value.kind == FileValue::Kind::List && option->get_expected_max() > 1;
    if (value.kind != FileValue::Kind::Text && !list) throw ConfigError(where + " takes text or a number");
    if (option->count() > 0) continue;
    for (const std::string& text : value.texts) option->add_result(text);
    if (!value.texts.empty()) option->run_callback();
  }
}

}  // namespace

std::optional<DaemonConfig> parse_daemon_config(int argc, const char* const* argv, std::string& printed) {
  DaemonConfig config;
  std::string bind = "*:29400";
  std::string http;
  std::string file;
  std::string secret_file;
  std::vector<std::string> stores;
  int ready_fd = -1;
  double drain = 30;
  double idle = 300;
  CLI::App app{
      "Serves the rendezvous of many cpprun jobs, and a store that PyTorch's TCPStore clients can use.\n"
      "Jobs find it by --rdzv-endpoint=HOST:PORT; it outlives them and their agents.",
      "cpprund"};
  app.set_version_flag("--version", "cpprund " CPPRUN_VERSION);
  app.get_formatter()->column_width(34);
  app.add_option("--config", file,
                 "JSON file of options by their names, without the dashes; the command line wins")
      ->type_name("FILE")
      ->configurable(false);
  app.add_option("--bind", bind, "Where to listen; * is every interface, port 0 one of the kernel's choice")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  app.add_option("--http-bind", http, "Where to serve /healthz and /metrics; nowhere by default")
      ->type_name("ADDRESS:PORT");
  app.add_option("--store", stores,
                 "A store of its own at a port of its own, at --bind's address; may be given several times")
      ->type_name("NAME=PORT")
      ->allow_extra_args(false);
  app.add_option("--ready-fd", ready_fd,
                 "Write the port, that of --http-bind and those of --store, as lines to this descriptor")
      ->type_name("FD")
      ->check(CLI::Range(0, 1'000'000).description(""));
  const CLI::Validator number = CLI::Range(1.0, 1e18).description("");
  app.add_option("--drain-limit", drain, "How long a first SIGTERM waits for the runs that are open")
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--max-runs", config.runs.runs, "Runs at once")
      ->type_name("N")
      ->check(number)
      ->capture_default_str();
  app.add_option("--run-idle-limit", idle, "Forget a run that no agent has been connected to for so long")
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--max-connections", config.store.connections,
                 "Clients of each store at once; no limit by default")
      ->type_name("N")
      ->check(number);
  app.add_option("--max-keys", config.store.keys, "Keys in each store; no limit by default")
      ->type_name("N")
      ->check(number);
  app.add_option("--max-bytes", config.store.bytes,
                 "Bytes of keys and values in each store; no limit by default")
      ->type_name("N")
      ->check(number);
  app.add_option("--secret-file", secret_file,
                 "Serve only who has this file's bytes, at least 32 random ones (cpprun --secret-file)")
      ->type_name("FILE");
  app.add_option("--log-level", config.log_level, "What to say on stderr")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    if (!file.empty()) apply_file(app, file);
  } catch (const CLI::Success& asked) {
    printed =
        dynamic_cast<const CLI::CallForVersion*>(&asked) ? std::string(asked.what()) + "\n" : app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  } catch (const ConfigFileError& error) {
    throw ConfigError(std::string("--config: ") + error.what());
  }
  config.bind = parse_bind("--bind", bind);
  if (!http.empty()) config.http = parse_bind("--http-bind", http);
  config.stores = parse_stores(stores);
  if (!stores.empty() && !secret_file.empty()) {
    throw ConfigError(
        "--store and --secret-file exclude each other: the clients of such a store know no TLS");
  }
  if (ready_fd >= 0) config.ready_fd = ready_fd;
  try {
    if (!secret_file.empty()) {
      config.secret = std::make_shared<store::Secret>(store::Secret::from_file(secret_file));
    }
  } catch (const store::SecretError& error) {
    throw ConfigError(std::string("--secret-file: ") + error.what());
  }
  config.drain_limit = to_milliseconds("--drain-limit", drain);
  config.runs.idle = to_milliseconds("--run-idle-limit", idle);
  return config;
}

}  // namespace cpprun::rendezvous
