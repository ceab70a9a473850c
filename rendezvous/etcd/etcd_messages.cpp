#include "rendezvous/etcd/etcd_messages.hpp"

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "rendezvous/etcd/base64.hpp"

namespace cpprun::rendezvous::messages {
namespace {

using nlohmann::json;

// The first key behind all that begin with `prefix`; a zero byte means "no end".
std::string end_of_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

json range_of(const KeyRange& range, const std::string& first) {
  // The empty prefix is every key, and a zero byte is the first there can be.
  json request{{"key", to_base64(first.empty() ? std::string(1, '\0') : first)}};
  if (range.is_prefix) request["range_end"] = to_base64(end_of_prefix(range.key));
  return request;
}

json put_of(const std::string& key, const std::string& value, LeaseId lease) {
  return {{"key", to_base64(key)}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}};
}

// Does so if `watched` is the key created at that revision, where 0 is "absent"; else reads it.
std::string if_created(const std::string& watched, Revision created, const json& request_op) {
  const std::string key = to_base64(watched);
  const json compare{
      {"key", key}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", std::to_string(created)}};
  const json request{{"compare", json::array({compare})},
                     {"success", json::array({request_op})},
                     {"failure", json::array({json{{"request_range", json{{"key", key}}}}})}};
  return request.dump();
}

json parse(const std::string& body) {
  json reply = json::parse(body, nullptr, false);
  if (!reply.is_object()) throw BadReply("it is no JSON object");
  return reply;
}

const json& part(const json& object, const char* name) {
  static const json kAbsent = json::object();
  const json::const_iterator found = object.find(name);
  return found == object.end() ? kAbsent : *found;
}

std::int64_t number(const json& object, const char* name) {
  const json::const_iterator found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  const std::string* const text = found->get_ptr<const std::string*>();
  std::int64_t value = 0;
  if (text != nullptr) {
    const char* const end = text->data() + text->size();
    const std::from_chars_result parsed = std::from_chars(text->data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) return value;
  }
  throw BadReply(std::string(name) + " is no whole number");
}

bool flag(const json& object, const char* name) {
  const json& value = part(object, name);
  return value.is_boolean() && value.get<bool>();
}

std::string text(const json& object, const char* name) {
  const json& value = part(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string bytes(const json& object, const char* name) {
  std::optional<std::string> decoded = from_base64(text(object, name));
  if (!decoded) throw BadReply(std::string(name) + " is no base64");
  return std::move(*decoded);
}

const json& list(const json& object, const char* name) {
  static const json kEmpty = json::array();
  const json::const_iterator found = object.find(name);
  if (found == object.end()) return kEmpty;
  if (!found->is_array()) throw BadReply(std::string(name) + " is no list");
  return *found;
}

// etcd's own replies have a header; those of another service that speaks JSON have not.
Revision revision_of(const json& reply) {
  if (!part(reply, "header").contains("cluster_id")) throw BadReply("it lacks etcd's header");
  return number(part(reply, "header"), "revision");
}

KeyValue key_value(const json& entry) {
  return {bytes(entry, "key"), bytes(entry, "value"), number(entry, "create_revision"),
          number(entry, "mod_revision"), number(entry, "lease")};
}

std::vector<KeyValue> key_values(const json& reply) {
  std::vector<KeyValue> entries;
  for (const json& entry : list(reply, "kvs")) entries.push_back(key_value(entry));
  return entries;
}

KeyEvent event(const json& entry) {
  KeyValue changed = key_value(part(entry, "kv"));
  return {text(entry, "type") == "DELETE", std::move(changed.key), std::move(changed.value), changed.created,
          changed.changed};
}

// The replies of a stream come in an envelope.
json streamed(const std::string& body) {
  const json envelope = parse(body);
  if (!envelope.contains("result")) throw BadReply("it has neither a result nor an error");
  return envelope["result"];
}

}  // namespace

std::string list_request(const KeyRange& range, const std::string& first, int limit, Revision at) {
  json request = range_of(range, first);
  request["limit"] = std::to_string(limit);
  request["revision"] = std::to_string(at);
  return request.dump();
}

std::string put_request(const std::string& key, const std::string& value, LeaseId lease) {
  return put_of(key, value, lease).dump();
}

std::string fenced_put_request(const std::string& key, const std::string& value, LeaseId lease,
                               const Fence& fence) {
  return if_created(fence.leader_key, fence.created, json{{"request_put", put_of(key, value, lease)}});
}

std::string create_request(const std::string& key, const std::string& value, LeaseId lease) {
  return if_created(key, 0, json{{"request_put", put_of(key, value, lease)}});
}

std::string delete_request(const KeyRange& range) {
  return range_of(range, range.key).dump();
}

std::string fenced_delete_request(const std::string& key, const Fence& fence) {
  const json range = range_of({key, false}, key);
  return if_created(fence.leader_key, fence.created, json{{"request_delete_range", range}});
}

std::string grant_request(std::chrono::seconds time_to_live) {
  return json{{"TTL", std::to_string(time_to_live.count())}}.dump();
}

std::string lease_request(LeaseId lease) {
  return json{{"ID", std::to_string(lease)}}.dump();
}

std::string watch_request(const KeyRange& range, Revision from) {
  json request = range_of(range, range.key);
  request["start_revision"] = std::to_string(from);
  return json{{"create_request", request}}.dump();
}

Revision read_revision(const std::string& body) {
  return revision_of(parse(body));
}

ListReply read_list(const std::string& body) {
  const json reply = parse(body);
  return {key_values(reply), flag(reply, "more"), revision_of(reply)};
}

TxnReply read_txn(const std::string& body) {
  const json reply = parse(body);
  TxnReply result{flag(reply, "succeeded"), std::nullopt, revision_of(reply)};
  for (const json& response : list(reply, "responses")) {
    for (KeyValue& entry : key_values(part(response, "response_range"))) result.found = std::move(entry);
  }
  return result;
}

std::int64_t read_deleted(const std::string& body) {
  const json reply = parse(body);
  revision_of(reply);
  return number(reply, "deleted");
}

Lease read_grant(const std::string& body) {
  const json reply = parse(body);
  const Lease lease{number(reply, "ID"), std::chrono::seconds(number(reply, "TTL"))};
  if (lease.id == kNoLease || lease.time_to_live.count() <= 0) throw BadReply("it grants no lease");
  return lease;
}

std::optional<std::chrono::seconds> read_keep_alive(const std::string& body) {
  const json reply = streamed(body);
  revision_of(reply);
  const std::int64_t seconds = number(reply, "TTL");
  return seconds > 0 ? std::optional(std::chrono::seconds(seconds)) : std::nullopt;
}

WatchReply read_watch(const std::string& line) {
  const json reply = streamed(line);
  WatchReply result;
  result.revision = revision_of(reply);
  for (const json& entry : list(reply, "events")) result.events.push_back(event(entry));
  result.created = flag(reply, "created");
  result.canceled = flag(reply, "canceled");
  result.compacted = number(reply, "compact_revision");
  result.reason = text(reply, "cancel_reason");
  return result;
}

std::optional<Fault> read_fault(const std::string& body) {
  const json reply = json::parse(body, nullptr, false);
  if (!reply.is_object()) return std::nullopt;
  // Within a stream: {"error": {"grpc_code": 14, "message": ...}}.
  const json& error = part(reply, "error");
  const json& told = error.is_object() && !error.empty() ? error : reply;
  std::string message = text(told, "message");
  const char* const name = told.contains("grpc_code") ? "grpc_code" : "code";
  if (message.empty() || !told.contains(name) || !told[name].is_number_integer()) return std::nullopt;
  return Fault{told[name].get<int>(), std::move(message)};
}

}  // namespace cpprun::rendezvous::messages
