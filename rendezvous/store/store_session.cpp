#include "rendezvous/store/store_session.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cpprun::store {
namespace {

// What a client that does not read may leave of the replies of a store behind a proxy: two of the longest.
constexpr std::size_t kMaxUnsentBehindProxy = 2 * kMaxReplyBytes;

// The first byte of a connection under TLS.
constexpr char kTlsHandshake = 0x16;

Fault fault_of(TlsFailure failure) {
  switch (failure) {
    case TlsFailure::NotTls:
      return Fault::NoSecret;
    case TlsFailure::OtherSecret:
      return Fault::OtherSecret;
    case TlsFailure::Broken:
      return Fault::BrokenTls;
    case TlsFailure::None:
      break;
  }
  return Fault::None;
}

// A connection at rest holds no memory but its own: assigning an empty string would keep the room.
void free_bytes(std::string& text) {
  std::string().swap(text);
}

}  // namespace

StoreSession::StoreSession(ByteStream stream, ConnectionId id, Endpoint peer,
                           async::Clock::time_point accepted)
    : stream_(std::move(stream)), id_(id), since_(accepted), peer_(std::move(peer)) {}

StoreSession::~StoreSession() {
  if (released_) return;
  // A child between fork and exec may hold the descriptor too: the peer is to see the end now.
  ::shutdown(stream_.fd(), SHUT_RDWR);
  ::close(stream_.fd());
}

StoreSession::Released StoreSession::release() {
  released_ = true;
  return {std::move(stream_), std::move(inbox_), std::move(opening_)};
}

void StoreSession::close(SessionWork& work) {
  if (fault_ == Fault::NoSecret || fault_ == Fault::TlsHello) refuse_tls(work.input);
  work.handler.forget(id_);
  if (link_) link_->close(work);
}

// After a call on the stream that failed.
StoreSession::State StoreSession::lost() {
  if (errno == EAGAIN || errno == EINTR) return State::Open;
  fault_ = fault_of(stream_.failure());
  return fault_ == Fault::None ? State::Left : State::Faulty;
}

// Tells a peer that has a secret where none is used, or none where one is: it is to know why it is closed.
void StoreSession::refuse_tls(std::span<char> scratch) {
  constexpr std::string_view kAlert("\x15\x03\x03\x00\x02\x02\x46", 7);  // fatal, protocol_version
  // What it has sent is read first: unread, it would make the kernel reset the connection.
  while (::recv(stream_.fd(), scratch.data(), scratch.size(), MSG_DONTWAIT) > 0) {
  }
  ::send(stream_.fd(), kAlert.data(), kAlert.size(), MSG_NOSIGNAL);
}

StoreSession::State StoreSession::on_readable(SessionWork& work) {
  const ssize_t n = stream_.receive(work.input);
  if (n < 0) return lost();
  if (n == 0) return State::Ended;
  const std::string_view fresh(work.input.data(), static_cast<std::size_t>(n));
  if (inbox_.empty()) return serve(fresh, work);
  inbox_.append(fresh);
  return serve(inbox_, work);
}

StoreSession::State StoreSession::on_writable(SessionWork& work) {
  if (unsent() == 0) return on_readable(work);  // which TLS could not do before it has written
  const State state = flush();
  if (state != State::Open || unsent() > 0) return state;
  return inbox_.empty() ? State::Open : serve(inbox_, work);
}

StoreSession::State StoreSession::on_woken() {
  const char stop = static_cast<char>(kStopWaiting);
  return send(std::string_view(&stop, 1));
}

bool StoreSession::on_woken(std::uint32_t channel) {
  const bool first = unsent() == 0;
  if (first) since_ = async::Clock::now();
  put_link_wakeup(outbox_, channel);
  return first;
}

StoreSession::State StoreSession::flush() {
  const ssize_t n = stream_.send(std::string_view(outbox_).substr(sent_));
  if (n < 0) return lost();
  sent_ += static_cast<std::size_t>(n);
  since_ = async::Clock::now();
  if (unsent() > 0) return State::Open;
  free_bytes(outbox_);
  sent_ = 0;
  return State::Open;
}

StoreSession::State StoreSession::deliver(std::string_view bytes) {
  if (unsent() + bytes.size() > kMaxUnsentBehindProxy) {
    fault_ = Fault::SlowReader;
    return State::Faulty;
  }
  return send(bytes);
}

// `input` is the inbox, or what was read while the inbox was empty.
StoreSession::State StoreSession::serve(std::string_view input, SessionWork& work) {
  const bool from_inbox = input.data() == inbox_.data();
  std::size_t served = 0;
  State state = State::Open;
  for (bool more = true; more && state == State::Open;) {
    const std::size_t consumed = serve_some(input.substr(served), work);
    served += consumed;
    // Stopped by the length of the replies: go on once they are sent.
    more = work.reply.size() >= kReplyPauseBytes;
    if (!work.reply.empty()) state = send(work.reply);
    work.reply.clear();
    if (work.reply.capacity() > 2 * kReplyPauseBytes) free_bytes(work.reply);
    if (!wants_read()) more = false;
  }
  if (state == State::Open && fault_ != Fault::None) state = State::Faulty;
  if (!from_inbox) {
    inbox_.assign(input.substr(served));
  } else if (served == input.size()) {
    free_bytes(inbox_);
  } else if (served > 0) {
    inbox_.erase(0, served);
  }
  // The answer is one byte, and the first on its way.
  if (state == State::Open && opening_) state = State::Opened;
  return state;
}

// Serves complete requests until the input, or the patience for unsent replies, is used up. Returns the bytes
// consumed.
std::size_t StoreSession::serve_some(std::string_view input, SessionWork& work) {
  std::size_t served = 0;
  while (fault_ == Fault::None && !opening_ && work.reply.size() < kReplyPauseBytes && wants_read()) {
    if (link_) {
      const LinkEnd::Served frame = link_->serve_next(input.substr(served), work);
      served += frame.consumed;
      fault_ = frame.fault;
      if (frame.consumed == 0) break;
      continue;
    }
    const RequestDecoder::Result decoded = decoder_.next(input.substr(served), work.request);
    served += decoded.consumed;
    fault_ = decoded.fault;
    if (fault_ == Fault::NotValidated && input[served] == kTlsHandshake) fault_ = Fault::TlsHello;
    if (decoded.state != RequestDecoder::State::Complete) break;
    fault_ = apply(work);
  }
  return served;
}

Fault StoreSession::apply(SessionWork& work) {
  if (work.request.op == Op::Open) return open(work);
  if (work.request.op == Op::Link) return link(work);
  if (work.request.op != Op::Ping) of_worker_ = true;
  ++work.use.requests[static_cast<std::size_t>(work.request.op)];
  return work.handler.serve(id_, work.request, work.reply, work.woken);
}

Fault StoreSession::open(SessionWork& work) {
  if (!work.config.desk || of_worker_) return Fault::UnknownOpcode;
  Opening opening{std::string(work.request.key), std::string(work.request.value)};
  const std::uint8_t answer = work.config.desk->admit(opening);
  put_number(work.reply, answer);
  if (answer == kOpened) opening_ = std::make_unique<Opening>(std::move(opening));
  return Fault::None;
}

Fault StoreSession::link(SessionWork& work) {
  if (!work.config.linked_run || of_worker_) return Fault::UnknownOpcode;
  const bool ours = work.request.key == *work.config.linked_run;
  put_number(work.reply, ours ? kOpened : kOtherRun);
  if (!ours) return Fault::None;
  of_worker_ = true;
  link_ = std::make_unique<LinkEnd>(id_);
  return Fault::None;
}

StoreSession::State StoreSession::send(std::string_view bytes) {
  std::size_t n = 0;
  if (unsent() == 0) {
    const ssize_t taken = stream_.send(bytes);
    if (taken < 0) {
      const State state = lost();
      if (state != State::Open) return state;
    }
    n = taken < 0 ? 0 : static_cast<std::size_t>(taken);
    if (n < bytes.size()) since_ = async::Clock::now();
  }
  if (n < bytes.size()) outbox_.append(bytes.substr(n));
  return State::Open;
}

std::optional<StoreSession::Limit> StoreSession::limit(const ServerLimits& limits) const {
  if (!decoder_.validated()) return Limit{since_ + limits.unvalidated, Fault::NeverValidated};
  if (unsent() > 0) return Limit{since_ + limits.stalled, Fault::SlowReader};
  return std::nullopt;
}

}  // namespace cpprun::store
