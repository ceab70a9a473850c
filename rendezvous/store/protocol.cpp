#include "rendezvous/store/protocol.hpp"

#include <bit>
#include <cstring>

namespace cpprun::store {

namespace {

bool has_key_list(Op op) {
  return op == Op::Check || op == Op::Wait || op == Op::MultiGet;
}

}  // namespace

static_assert(std::endian::native == std::endian::little,
              "the wire's integers are read and written as they lie");

// Reads the fields of one request, up to the first that is incomplete or forbidden.
class RequestDecoder::FieldReader {
 public:
  FieldReader(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  template <typename T>
  bool number(T& value) {
    if (bytes_.size() - at_ < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool key(std::string_view& text) { return string(text, kMaxKeyBytes, Fault::KeyTooLong); }
  bool value(std::string_view& text) { return string(text, kMaxValueBytes, Fault::ValueTooLong); }
  bool key_count(std::uint64_t& count) {
    if (!number(count)) return false;
    if (count > kMaxKeysPerRequest) fault_ = Fault::TooManyKeys;
    return fault_ == Fault::None;
  }

  std::size_t at() const { return at_; }
  void seek(std::size_t at) { at_ = at; }
  Fault fault() const { return fault_; }

 private:
  // A length is judged as soon as it is there, before its bytes are.
  bool string(std::string_view& text, std::size_t limit, Fault too_long) {
    std::uint64_t length = 0;
    const std::size_t start = at_;
    if (!number(length)) return false;
    if (length > limit) {
      fault_ = too_long;
      return false;
    }
    if (bytes_.size() - at_ < length) {
      at_ = start;
      return false;
    }
    text = bytes_.substr(at_, length);
    at_ += length;
    return true;
  }

  std::string_view bytes_;
  std::size_t at_;
  Fault fault_ = Fault::None;
};

// The fields of every request but VALIDATE, MULTI_SET and those with a list of keys.
bool RequestDecoder::read_fields(FieldReader& in, Request& request) {
  switch (request.op) {
    case Op::Set:
    case Op::Append:
    case Op::QueuePush:
    case Op::Open:
      return in.key(request.key) && in.value(request.value);
    case Op::CompareSet:
      return in.key(request.key) && in.value(request.expected) && in.value(request.value);
    case Op::Get:
    case Op::DeleteKey:
    case Op::QueuePop:
    case Op::QueueLen:
    case Op::Link:
      return in.key(request.key);
    case Op::Add:
    case Op::Barrier:
      return in.key(request.key) && in.number(request.number);
    case Op::Ping: {
      std::uint32_t nonce = 0;
      const bool read = in.number(nonce);
      request.number = nonce;
      return read;
    }
    default:  // GETNUMKEYS, CANCEL_WAIT, LIST_KEYS: no fields
      return true;
  }
}

const char* describe(Fault fault) {
  switch (fault) {
    case Fault::None:
      return "nothing is wrong";
    case Fault::NotValidated:
      return "its first bytes are not those of a store client";
    case Fault::ValidatedTwice:
      return "it validated a second time";
    case Fault::UnknownOpcode:
      return "it sent an opcode the protocol does not have";
    case Fault::KeyTooLong:
      return "a key is longer than 8192 bytes";
    case Fault::ValueTooLong:
      return "a value is longer than 8388608 bytes";
    case Fault::TooManyKeys:
      return "a request names more than 131072 keys";
    case Fault::RequestTooLong:
      return "a request is longer than 32 MiB";
    case Fault::NotANumber:
      return "it counts at a key whose value is not a number";
    case Fault::ReplyTooLong:
      return "the reply to a request would be longer than 64 MiB";
    case Fault::TooManyWaits:
      return "its open waits name more than 131072 keys";
    case Fault::SlowReader:
      return "it has stopped reading its replies";
    case Fault::NeverValidated:
      return "it did not say within the time limit that it is a store client";
    case Fault::TableFull:
      return "it wrote more than the store may hold";
    case Fault::TorchrunAgent:
      return "it is an agent of torchrun, which cannot take part in a run of cpprun's: start cpprun on every "
             "node";
    case Fault::TlsHello:
      return "it speaks TLS, and no secret is used here: give --secret-file on every node, or on none";
    case Fault::NoSecret:
      return "it does not use the secret that is used here: give the same --secret-file on every node";
    case Fault::OtherSecret:
      return "it has another secret: --secret-file must be the same on every node";
    case Fault::BrokenTls:
      return "what it sent was changed on its way";
    case Fault::BadLink:
      return "what it sent is nothing that a cpprun agent of this version sends";
    case Fault::ClosedBehind:
      return "the store behind this proxy has closed its connection, or was lost";
    case Fault::RefusedTooOften:
      return "its host has failed to prove the secret so often that it is not heard for 10 s";
  }
  return "";
}

RequestDecoder::Result RequestDecoder::next(std::string_view input, Request& request) {
  // Views of the request before this one, which may have been another connection's and be gone.
  request.key = request.value = request.expected = {};
  request.keys.clear();
  std::size_t start = 0;  // of the request; moves past a VALIDATE and the head of a MULTI_SET
  for (;;) {
    FieldReader in(input, start);
    if (pairs_left_ > 0) {
      request.op = Op::MultiSet;
      if (!in.key(request.key) || !in.value(request.value)) return incomplete(in.fault(), input, start);
      --pairs_left_;
      return {State::Complete, in.at()};
    }
    std::uint8_t opcode = 0;
    if (!in.number(opcode)) return {State::NeedMore, start};
    request.op = static_cast<Op>(opcode);
    if (!validated_) {
      std::uint32_t magic = 0;
      if (request.op != Op::Validate) return {State::Faulty, start, Fault::NotValidated};
      if (!in.number(magic)) return {State::NeedMore, start};
      if (magic != kMagic) return {State::Faulty, start, Fault::NotValidated};
      validated_ = true;
      start = in.at();
      continue;
    }
    if (request.op == Op::Validate) return {State::Faulty, start, Fault::ValidatedTwice};
    const bool ours = request.op == Op::Open || request.op == Op::Link;
    if (opcode > kLastOp && !ours) return {State::Faulty, start, Fault::UnknownOpcode};
    if (request.op == Op::MultiSet) {
      std::uint64_t pairs = 0;
      if (!in.key_count(pairs)) return incomplete(in.fault(), input, start);
      pairs_left_ = static_cast<std::uint32_t>(pairs);
      start = in.at();
      continue;
    }
    const bool whole =
        has_key_list(request.op) ? read_key_list(in, start, request) : read_fields(in, request);
    if (!whole) return incomplete(in.fault(), input, start);
    return {State::Complete, in.at()};
  }
}

RequestDecoder::Result RequestDecoder::incomplete(Fault fault, std::string_view input, std::size_t start) {
  if (fault == Fault::None && input.size() - start > kMaxRequestBytes) fault = Fault::RequestTooLong;
  if (fault != Fault::None) return {State::Faulty, start, fault};
  return {State::NeedMore, start};
}

// Keys already seen in an earlier call are not looked at again until the list is whole.
bool RequestDecoder::read_key_list(FieldReader& in, std::size_t start, Request& request) {
  std::uint64_t count = 0;
  if (!in.key_count(count)) return false;
  const std::size_t first = in.at();
  if (keys_seen_ > 0) in.seek(start + resume_at_);
  for (std::string_view key; keys_seen_ < count; ++keys_seen_) {
    if (in.key(key)) continue;
    resume_at_ = static_cast<std::uint32_t>(in.at() - start);
    return false;
  }
  keys_seen_ = 0;
  in.seek(first);
  request.keys.resize(count);
  for (std::string_view& key : request.keys) in.key(key);
  return true;
}

void put_text(std::string& out, std::string_view text) {
  put_number<std::uint64_t>(out, text.size());
  out.append(text);
}

void put_request(std::string& out, const Request& request) {
  put_number(out, request.op == Op::MultiSet ? Op::Set : request.op);
  switch (request.op) {
    case Op::Set:
    case Op::MultiSet:
    case Op::Append:
    case Op::QueuePush:
    case Op::Open:
      put_text(out, request.key);
      put_text(out, request.value);
      return;
    case Op::CompareSet:
      put_text(out, request.key);
      put_text(out, request.expected);
      put_text(out, request.value);
      return;
    case Op::Get:
    case Op::DeleteKey:
    case Op::QueuePop:
    case Op::QueueLen:
    case Op::Link:
      put_text(out, request.key);
      return;
    case Op::Add:
    case Op::Barrier:
      put_text(out, request.key);
      put_number(out, request.number);
      return;
    case Op::Ping:
      put_number(out, static_cast<std::uint32_t>(request.number));
      return;
    case Op::Check:
    case Op::Wait:
    case Op::MultiGet:
      put_number<std::uint64_t>(out, request.keys.size());
      for (const std::string_view key : request.keys) put_text(out, key);
      return;
    case Op::Validate:
    case Op::CancelWait:
    case Op::GetNumKeys:
    case Op::ListKeys:
      return;
  }
}

}  // namespace cpprun::store
