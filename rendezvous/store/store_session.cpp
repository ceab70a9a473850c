#include "rendezvous/store/store_session.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/store/apply_request.hpp"

namespace cpprun::store {
namespace {

// By the keys at which torchrun's agents meet (c10d) or exchange their roles (static).
bool is_torchrun_agent(const Request& request) {
  return request.key.starts_with("/torch.rendezvous.") ||
         request.key.find("/torchelastic/role_info/") != std::string_view::npos;
}

// A connection at rest holds no memory but its own: assigning an empty string would keep the room.
void free_bytes(std::string& text) {
  std::string().swap(text);
}

}  // namespace

StoreSession::StoreSession(int fd, ConnectionId id, Endpoint peer, async::Clock::time_point accepted)
    : fd_(fd), id_(id), since_(accepted), peer_(std::move(peer)) {}

StoreSession::~StoreSession() {
  if (fd_ < 0) return;
  // A child between fork and exec may hold the descriptor too: the peer is to see the end now.
  ::shutdown(fd_, SHUT_RDWR);
  ::close(fd_);
}

std::pair<int, std::string> StoreSession::release() {
  return {std::exchange(fd_, -1), std::move(inbox_)};
}

StoreSession::State StoreSession::on_readable(SessionWork& work) {
  const ssize_t n = ::recv(fd_, work.input.data(), work.input.size(), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? State::Open : State::Left;
  if (n == 0) return State::Left;
  const std::string_view fresh(work.input.data(), static_cast<std::size_t>(n));
  if (inbox_.empty()) return serve(fresh, work);
  inbox_.append(fresh);
  return serve(inbox_, work);
}

StoreSession::State StoreSession::on_writable(SessionWork& work) {
  const std::string_view rest = std::string_view(outbox_).substr(sent_);
  const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? State::Open : State::Left;
  sent_ += static_cast<std::size_t>(n);
  since_ = async::Clock::now();
  if (unsent() > 0) return State::Open;
  free_bytes(outbox_);
  sent_ = 0;
  return inbox_.empty() ? State::Open : serve(inbox_, work);
}

StoreSession::State StoreSession::on_woken() {
  const char stop = static_cast<char>(kStopWaiting);
  return send(std::string_view(&stop, 1));
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
  if (state == State::Open && opened_) state = State::Opened;
  return state;
}

// Serves complete requests until the input, or the patience for unsent replies, is used up. Returns the bytes
// consumed.
std::size_t StoreSession::serve_some(std::string_view input, SessionWork& work) {
  std::size_t served = 0;
  while (fault_ == Fault::None && !opened_ && work.reply.size() < kReplyPauseBytes && wants_read()) {
    const RequestDecoder::Result decoded = decoder_.next(input.substr(served), work.request);
    served += decoded.consumed;
    fault_ = decoded.fault;
    if (decoded.state != RequestDecoder::State::Complete) break;
    fault_ = apply(work);
  }
  return served;
}

Fault StoreSession::apply(SessionWork& work) {
  if (work.request.op == Op::Open) return open(work);
  if (work.run && is_torchrun_agent(work.request)) return Fault::TorchrunAgent;
  if (work.request.op != Op::Ping) of_worker_ = true;
  return apply_request(work.table, id_, work.request, work.limits.reply_bytes, work.reply, work.woken);
}

Fault StoreSession::open(SessionWork& work) {
  if (!work.run) return Fault::UnknownOpcode;
  if (of_worker_) return Fault::UnknownOpcode;
  const bool same_run = work.request.key == *work.run;
  put_number(work.reply, same_run ? kOpened : kOtherRun);
  opened_ = same_run;
  return Fault::None;
}

StoreSession::State StoreSession::send(std::string_view bytes) {
  std::size_t n = 0;
  if (unsent() == 0) {
    const ssize_t taken = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN && errno != EINTR) return State::Left;
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
