#include "launcher/health/evidence_request.hpp"

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr const char* kQuiet = "quiet:";
constexpr const char* kGiveUp = "give up ";

std::string head_of(const EvidenceRequest& request) {
  switch (request.kind) {
    case EvidenceRequest::Kind::Quiet:
      return kQuiet;
    case EvidenceRequest::Kind::GiveUp:
      return kGiveUp + std::to_string(request.rank) + ":";
    case EvidenceRequest::Kind::Stacks:
      break;
  }
  return "stacks:";
}

}  // namespace

std::string to_text(const EvidenceRequest& request) {
  return head_of(request) + request.why;
}

EvidenceRequest evidence_request(const std::string& text) {
  EvidenceRequest request;
  const std::size_t colon = text.find(':');
  const std::string head = text.substr(0, colon == std::string::npos ? 0 : colon + 1);
  request.why = text.substr(head.size());
  if (head == kQuiet) {
    request.kind = EvidenceRequest::Kind::Quiet;
  } else if (head.rfind(kGiveUp, 0) == 0) {
    const std::string start = kGiveUp;
    const std::optional<int> rank = whole_number(head.substr(start.size(), head.size() - start.size() - 1));
    if (rank) {
      request.kind = EvidenceRequest::Kind::GiveUp;
      request.rank = *rank;
    }
  }
  return request;
}

std::string answer_to(const EvidenceRequest& request, const std::string& content) {
  return head_of(request) + content;
}

std::optional<std::string> content_for(const EvidenceRequest& request, const std::string& answer) {
  const std::string head = head_of(request);
  if (answer.rfind(head, 0) != 0) return std::nullopt;
  return answer.substr(head.size());
}

}  // namespace cpprun::launcher
