// The store's wire protocol as values: requests decoded from bytes, replies encoded to bytes. Pure; see
// PROTOCOL.md for the protocol in words. All integers are little-endian; a string is a u64 length and bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace cpprun::store {

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
inline constexpr std::size_t kMaxKeyBytes = 8192;
inline constexpr std::size_t kMaxValueBytes = 8'388'608;
inline constexpr std::uint64_t kMaxKeysPerRequest = 131'072;
// Of one request that must be whole before it is served: room for the largest COMPARE_SET and for long lists
// of keys. MULTI_SET is served pair by pair and has no such limit.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{32} << 20;
inline constexpr std::size_t kMaxReplyBytes = std::size_t{64} << 20;
// Above this many unsent reply bytes no further request of that connection is served.
inline constexpr std::size_t kReplyPauseBytes = std::size_t{1} << 20;
inline constexpr std::chrono::milliseconds kUnvalidatedLifetime = std::chrono::seconds(10);
inline constexpr std::chrono::milliseconds kStalledReaderLifetime = std::chrono::seconds(60);

enum class Op : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  GetNumKeys = 7,
  DeleteKey = 8,
  Append = 9,
  MultiGet = 10,
  MultiSet = 11,
  CancelWait = 12,
  Ping = 13,
  QueuePush = 14,
  QueuePop = 15,
  QueueLen = 16,
  ListKeys = 17,
  Barrier = 18,
  // Ours, far from c10d's numbers: an agent names its run, and the connection is no store's any more.
  Open = 0xC0,
  // Ours too: a node's proxy names its run, and the connection carries the requests of all its clients.
  Link = 0xC1,
};
inline constexpr std::uint8_t kLastOp = 18;  // of c10d's

inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCancelled = 1;
inline constexpr std::uint8_t kOpened = 0;
inline constexpr std::uint8_t kOtherRun = 1;
inline constexpr std::uint8_t kNoRoom = 2;      // for another run, at present
inline constexpr std::uint8_t kClosing = 3;     // the server is about to end
inline constexpr std::uint8_t kUnreadable = 4;  // the rules of the run
inline constexpr std::uint8_t kSoleLeader = 5;  // the run has other endpoints, and this server none beside it

// One request. The views point into the bytes it was decoded from. MULTI_SET comes as one request a pair.
struct Request {
  Op op = Op::Ping;
  std::string_view key;       // OPEN, LINK: the run
  std::string_view value;     // SET, APPEND, QUEUE_PUSH, MULTI_SET; COMPARE_SET: desired; OPEN: the rules
  std::string_view expected;  // COMPARE_SET
  std::int64_t number = 0;    // ADD: delta; BARRIER: world size; PING: nonce
  std::vector<std::string_view> keys;  // CHECK, WAIT, MULTI_GET
};

// Why a connection cannot go on.
enum class Fault {
  None,
  NotValidated,  // the first request is not VALIDATE, or its magic is wrong
  ValidatedTwice,
  UnknownOpcode,
  KeyTooLong,
  ValueTooLong,
  TooManyKeys,
  RequestTooLong,
  NotANumber,  // ADD or BARRIER on a value that is not one
  ReplyTooLong,
  TooManyWaits,  // more open registrations than one request may name keys
  SlowReader,
  NeverValidated,  // no VALIDATE within the limit
  TableFull,       // a write would exceed the table's limits
  TorchrunAgent,   // where cpprun's agents meet
  TlsHello,        // where no secret is used
  NoSecret,        // no TLS, where a secret is used
  OtherSecret,
  BrokenTls,
  BadLink,          // what a link carries is no frames
  ClosedBehind,     // the store behind the proxy has closed this client's connection, or was lost
  RefusedTooOften,  // its host has failed to prove the secret; not even heard
};
const char* describe(Fault fault);  // a phrase after "closed <peer>: "

// Decodes the requests of one connection. Holds no bytes: the caller keeps what a request still lacks and
// offers it again with more behind it. No work is done twice however the bytes are split.
class RequestDecoder {
 public:
  enum class State { Complete, NeedMore, Faulty };
  struct Result {
    State state;
    std::size_t consumed =
        0;  // bytes to drop from the front; also with NeedMore (a served part of MULTI_SET)
    Fault fault = Fault::None;
  };

  // `validated`: of a connection, or a client of a link, that needs no VALIDATE.
  explicit RequestDecoder(bool validated = false) : validated_(validated) {}

  // `input` starts where the last Complete request ended. `request` is filled if Complete, and keeps nothing
  // of the request that it held before.
  Result next(std::string_view input, Request& request);

  bool validated() const { return validated_; }

 private:
  class FieldReader;
  static bool read_fields(FieldReader& in, Request& request);
  bool read_key_list(FieldReader& in, std::size_t start, Request& request);
  static Result incomplete(Fault fault, std::string_view input, std::size_t start);

  bool validated_;
  std::uint32_t pairs_left_ = 0;  // of a MULTI_SET in progress
  std::uint32_t keys_seen_ = 0;   // of an incomplete list of keys
  std::uint32_t resume_at_ = 0;   // where the list's next key starts, from the request's first byte
};

// Appends a fixed-size number, or a length and its bytes, as requests and replies hold them.
template <typename T>
void put_number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}
void put_text(std::string& out, std::string_view text);
// The request as RequestDecoder reads it; a pair of a MULTI_SET as the SET that it is.
void put_request(std::string& out, const Request& request);

}  // namespace cpprun::store
