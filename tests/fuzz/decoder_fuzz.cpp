// Any bytes to the RequestDecoder, whole and in pieces: the same requests must come out, within the limits,
// and each must be the bytes it was made of. The first byte of the input says how it is cut, the rest is what
// a client sends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/protocol.hpp"
#include "tests/fuzz/require.hpp"

namespace {

using namespace cpprun::store;
using cpprun::fuzz::require;
using State = RequestDecoder::State;

// A request with its own bytes.
struct Copy {
  Op op;
  std::string key, value, expected;
  std::int64_t number;
  std::vector<std::string> keys;
  bool operator==(const Copy&) const = default;
};

struct Decoded {
  std::vector<Copy> requests;
  Fault fault = Fault::None;
  bool validated = false;
  std::size_t left = 0;  // bytes of an unfinished request
};

Copy copy(const Request& request, bool list) {
  Copy out{request.op,
           std::string(request.key),
           std::string(request.value),
           std::string(request.expected),
           request.number,
           {}};
  if (list) out.keys.assign(request.keys.begin(), request.keys.end());
  return out;
}

bool has_list(Op op) {
  return op == Op::Check || op == Op::Wait || op == Op::MultiGet;
}

// The bytes of a request, but of a MULTI_SET those of one pair.
std::string encode(const Copy& request) {
  std::string out;
  if (request.op != Op::MultiSet) put_number(out, request.op);
  if (has_list(request.op)) {
    put_number<std::uint64_t>(out, request.keys.size());
    for (const std::string& key : request.keys) put_text(out, key);
    return out;
  }
  switch (request.op) {
    case Op::GetNumKeys:
    case Op::CancelWait:
    case Op::ListKeys:
      return out;
    case Op::Ping:
      put_number(out, static_cast<std::uint32_t>(request.number));
      return out;
    default:
      break;
  }
  put_text(out, request.key);
  if (request.op == Op::CompareSet) put_text(out, request.expected);
  switch (request.op) {
    case Op::Set:
    case Op::MultiSet:
    case Op::Append:
    case Op::QueuePush:
    case Op::CompareSet:
    case Op::Open:
      put_text(out, request.value);
      break;
    case Op::Add:
    case Op::Barrier:
      put_number(out, request.number);
      break;
    default:
      break;
  }
  return out;
}

bool within(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_limits(const Request& request, std::string_view input) {
  require(within(request.key, input) && request.key.size() <= kMaxKeyBytes,
          "a key lies in the input, within its limit");
  for (const std::string_view value : {request.value, request.expected}) {
    require(within(value, input) && value.size() <= kMaxValueBytes,
            "a value lies in the input, within its limit");
  }
  if (!has_list(request.op)) return;
  require(request.keys.size() <= kMaxKeysPerRequest, "a list is within its limit");
  for (const std::string_view key : request.keys)
    require(within(key, input), "a list's key lies in the input");
}

// Offers the bytes as a session does: what a request still lacks is kept, and offered again with the next
// piece.
Decoded decode(std::string_view bytes, std::size_t piece) {
  Decoded decoded;
  RequestDecoder decoder;
  std::string inbox;
  while (!bytes.empty() && decoded.fault == Fault::None) {
    const std::size_t n = std::min(piece, bytes.size());
    inbox.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    for (bool more = true; more;) {
      Request request;
      const RequestDecoder::Result result = decoder.next(inbox, request);
      require(result.consumed <= inbox.size(), "no more is consumed than was there");
      require((result.state == State::Faulty) == (result.fault != Fault::None), "faulty for a reason");
      more = result.state == State::Complete;
      if (more) {
        check_limits(request, inbox);
        const Copy now = copy(request, has_list(request.op));
        const std::string again = encode(now);
        require(again.size() <= result.consumed, "a request is not longer than its bytes");
        require(std::string_view(inbox).substr(result.consumed - again.size(), again.size()) == again,
                "a request is the bytes it was made of");
        decoded.requests.push_back(now);
      }
      decoded.fault = result.fault;
      inbox.erase(0, result.consumed);
    }
  }
  decoded.validated = decoder.validated();
  decoded.left = inbox.size();
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = std::size_t{1} + data[0] % 64;
  const Decoded whole = decode(bytes, std::max<std::size_t>(bytes.size(), 1));
  const Decoded pieces = decode(bytes, piece);
  require(whole.requests == pieces.requests, "pieces give the same requests");
  require(whole.fault == pieces.fault && whole.validated == pieces.validated, "pieces end alike");
  require(whole.fault != Fault::None || whole.left == pieces.left, "pieces leave the same rest");
  std::string validate;
  put_number(validate, Op::Validate);
  put_number(validate, kMagic);
  require(whole.validated == bytes.starts_with(validate), "who begins with VALIDATE is validated");
  require(whole.requests.empty() || whole.validated, "no request is served before VALIDATE");
  return 0;
}
