#include "rendezvous/rendezvous_settings.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "rendezvous/text.hpp"

namespace cpprun::rendezvous {
namespace {

std::uint16_t parse_port(const std::string& digits, const std::string& whole) {
  int port = 0;
  const std::from_chars_result parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || port < 0 || port > 65535) {
    throw SettingsError("the endpoint '" + whole + "' ends in '" + digits +
                        "', which is no port from 0 to 65535");
  }
  return static_cast<std::uint16_t>(port);
}

void check_host(const std::string& host, const std::string& whole) {
  const bool good = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (!good)
    throw SettingsError("the endpoint '" + whole + "' names no valid host; expected host or host:port");
}

std::optional<std::string> value_of(const Settings& settings, const char* key) {
  const Settings::const_iterator entry = settings.find(key);
  return entry == settings.end() ? std::nullopt : std::optional<std::string>(entry->second);
}

void read_seconds(const Settings& settings, const char* key, std::chrono::milliseconds& value) {
  const std::optional<std::string> text = value_of(settings, key);
  if (!text) return;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (*end != '\0' || !std::isfinite(seconds) || seconds < 0.001 || seconds > 1e9) {
    throw SettingsError(std::string(key) + "=" + *text + " is not a positive number of seconds");
  }
  value = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

bool is_time(const std::string& key) {
  static const std::string kEnd = "_timeout";
  return key == "timeout" || key == "keep_alive_interval" ||
         (key.size() > kEnd.size() && key.compare(key.size() - kEnd.size(), kEnd.size(), kEnd) == 0);
}

void read_count(const Settings& settings, const char* key, int& value) {
  const std::optional<std::string> text = value_of(settings, key);
  if (!text) return;
  const std::from_chars_result parsed = std::from_chars(text->data(), text->data() + text->size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size() || value < 1) {
    throw SettingsError(std::string(key) + "=" + *text + " is not a whole number from 1 up");
  }
}

void read_switch(const Settings& settings, const char* key, std::optional<bool>& value) {
  std::optional<std::string> text = value_of(settings, key);
  if (!text) return;
  std::transform(text->begin(), text->end(), text->begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "t", "yes", "y"}) {
    if (*text == yes) value = true;
  }
  for (const char* no : {"0", "false", "f", "no", "n"}) {
    if (*text == no) value = false;
  }
  if (!value) throw SettingsError(std::string(key) + "=" + *text + " is neither true nor false");
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  const std::string whole = trim(text);
  if (whole.empty()) return {"localhost", std::nullopt};
  Endpoint endpoint;
  if (whole.front() == '[') {
    const std::size_t close = whole.find(']');
    if (close == std::string::npos) throw SettingsError("the endpoint '" + whole + "' lacks its closing ']'");
    endpoint.host = whole.substr(1, close - 1);
    if (close + 1 < whole.size()) {
      if (whole[close + 1] != ':')
        throw SettingsError("the endpoint '" + whole + "' has something other than :port behind its ']'");
      endpoint.port = parse_port(whole.substr(close + 2), whole);
    }
  } else if (std::count(whole.begin(), whole.end(), ':') == 1) {
    const std::size_t colon = whole.find(':');
    endpoint.host = whole.substr(0, colon);
    endpoint.port = parse_port(whole.substr(colon + 1), whole);
  } else {
    endpoint.host = whole;  // a name, or a bare IPv6 address, whose colons are its own
  }
  check_host(endpoint.host, whole);
  return endpoint;
}

std::vector<Endpoint> parse_endpoints(const std::string& text) {
  std::vector<Endpoint> endpoints;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = trim(text.substr(begin, end - begin));
    begin = end + 1;
    if (one.empty() && text.find(',') != std::string::npos) {
      throw SettingsError("the list of endpoints '" + text + "' has an empty place");
    }
    endpoints.push_back(parse_endpoint(one));
  }
  return endpoints;
}

Settings parse_settings(const std::string& text) {
  Settings settings;
  const std::string whole = trim(text);
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = std::min(whole.find(',', begin), whole.size());
    const std::string entry = trim(whole.substr(begin, end - begin));
    begin = end + 1;
    const std::size_t equals = entry.find('=');
    const std::string key = trim(entry.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trim(entry.substr(equals + 1));
    if (key.empty() || value.empty()) {
      throw SettingsError("'" + entry + "' in the rendezvous settings is not of the form key=value");
    }
    settings[key] = value;
  }
  return settings;
}

const std::vector<KnownSetting>& known_settings() {
  static const std::vector<KnownSetting> kKnown{
      {"timeout", {"static", "etcd"}},
      {"join_timeout", {"c10d", "etcd"}},
      {"read_timeout", {"c10d", "etcd"}},
      {"last_call_timeout", {"c10d", "etcd"}},
      {"keep_alive_interval", {}},     // of all
      {"keep_alive_max_attempt", {}},  // of all
      {"is_host", {"c10d"}},
      {"protocol", {"etcd"}},
      {"cacert", {"etcd"}},
      {"cert", {"etcd"}},
      {"key", {"etcd"}},
      {"ca_cert", {"etcd"}},
      {"ssl_cert", {"etcd"}},
      {"ssl_cert_key", {"etcd"}},
      {"etcd_prefix", {"etcd"}},
      {"close_timeout", {}},  // from here on, torchrun's alone
      {"heartbeat_timeout", {}},
      {"cas_backoff_max_seconds", {}},
      {"store_type", {}},
      {"rank", {}},
  };
  return kKnown;
}

RendezvousLimits limits_of(const Settings& settings, const std::string& backend) {
  const bool static_backend = backend == "static";
  RendezvousLimits limits;
  for (const auto& [key, value] : settings) {
    std::chrono::milliseconds any{};
    if (is_time(key)) read_seconds(settings, key.c_str(), any);
  }
  if (static_backend) limits.join_timeout = limits.connect_timeout = std::chrono::seconds(900);
  if (backend == "etcd") read_seconds(settings, "timeout", limits.join_timeout);
  read_seconds(settings, static_backend ? "timeout" : "join_timeout", limits.join_timeout);
  read_seconds(settings, static_backend ? "timeout" : "read_timeout", limits.connect_timeout);
  read_seconds(settings, "last_call_timeout", limits.last_call);
  read_seconds(settings, "keep_alive_interval", limits.keep_alive_interval);
  read_count(settings, "keep_alive_max_attempt", limits.keep_alive_attempts);
  read_switch(settings, "is_host", limits.is_host);
  if (limits.keep_alive_interval > std::chrono::hours(1) || limits.keep_alive_attempts > 1000) {
    throw SettingsError("keep_alive_interval is at most 3600 and keep_alive_max_attempt at most 1000");
  }
  return limits;
}

}  // namespace cpprun::rendezvous
