#include "rendezvous/store/link_end.hpp"

#include <algorithm>

#include "rendezvous/store/link_frames.hpp"

namespace cpprun::store {
namespace {

constexpr std::size_t kMaxClients = 65'536;

}  // namespace

LinkEnd::Served LinkEnd::serve_next(std::string_view input, SessionWork& work) {
  LinkFrame frame;
  switch (next_link_frame(input, kMaxRequestBytes, frame)) {
    case LinkInput::NeedMore:
      return {};
    case LinkInput::TooLong:
      return {0, Fault::BadLink};
    case LinkInput::Frame:
      break;
  }
  if (!frame.closed) return {frame.size, serve(frame.channel, frame.bytes, work)};
  const auto gone = clients_.find(frame.channel);
  if (gone != clients_.end()) {
    forget(gone->second, work);
    clients_.erase(gone);
    put_link_closed(work.reply, frame.channel);
  }
  return {frame.size};
}

Fault LinkEnd::serve(std::uint32_t channel, std::string_view bytes, SessionWork& work) {
  Client* sender = client(channel, work);
  if (!sender) return Fault::BadLink;
  if (sender->closed) return Fault::None;
  RequestDecoder decoder(true);
  const RequestDecoder::Result decoded = decoder.next(bytes, work.request);
  const bool whole = decoded.state == RequestDecoder::State::Complete && decoded.consumed == bytes.size();
  if (!whole || static_cast<std::uint8_t>(work.request.op) > kLastOp) return Fault::BadLink;
  ++work.use.requests[static_cast<std::size_t>(work.request.op)];
  Fault fault = Fault::None;
  {
    const LinkFrameWriter frame(work.reply, channel);
    fault = work.handler.serve(sender->id, work.request, work.reply, work.woken);
  }
  if (fault != Fault::None) {
    forget(*sender, work);
    sender->closed = true;
    put_link_closed(work.reply, channel);
    work.fault_behind_link = fault;
  }
  tell_woken(work);
  return Fault::None;
}

// Null where there are too many.
LinkEnd::Client* LinkEnd::client(std::uint32_t channel, SessionWork& work) {
  const auto [entry, is_new] = clients_.try_emplace(channel);
  if (is_new) {
    if (clients_.size() > kMaxClients) {
      clients_.erase(entry);
      return nullptr;
    }
    entry->second.id = work.channels.take({link_, channel});
  }
  return &entry->second;
}

void LinkEnd::forget(const Client& client, SessionWork& work) {
  if (client.closed) return;
  work.handler.forget(client.id);
  work.channels.release(client.id);
}

// Before the next request's reply: nobody on this node hears of what came after a wake-up and not of the
// wake-up.
void LinkEnd::tell_woken(SessionWork& work) const {
  std::erase_if(work.woken, [&](ConnectionId id) {
    if (!ChannelIds::holds(id) || work.channels.owner(id).link != link_) return false;
    put_link_wakeup(work.reply, work.channels.owner(id).channel);
    return true;
  });
}

void LinkEnd::close(SessionWork& work) {
  for (const auto& [channel, client] : clients_) forget(client, work);
  clients_.clear();
}

void put_link_wakeup(std::string& out, std::uint32_t channel) {
  const LinkFrameWriter frame(out, channel);
  put_number(out, kStopWaiting);
}

}  // namespace cpprun::store
