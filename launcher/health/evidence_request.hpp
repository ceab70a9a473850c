// What one agent asks of all agents of an attempt, itself included, as one line of text. Pure.
#pragma once

#include <optional>
#include <string>

namespace cpprun::launcher {

struct EvidenceRequest {
  enum class Kind {
    Stacks,  // take and send the stacks of your workers
    Quiet,   // say whether all your workers have been still for a while: "1", or "0"
    GiveUp,  // the worker of `rank` hangs: if it is yours it has failed. The answer is "ok" from its agent
  };
  Kind kind = Kind::Stacks;
  int rank = -1;    // of GiveUp
  std::string why;  // for people
};

std::string to_text(const EvidenceRequest& request);
// Whatever is none of the others asks for stacks.
EvidenceRequest evidence_request(const std::string& text);

// Agents that ask at the same moment share one request, so that an answer tells what it answers: these two
// are the form of one. Nothing where it answers another request.
std::string answer_to(const EvidenceRequest& request, const std::string& content);
std::optional<std::string> content_for(const EvidenceRequest& request, const std::string& answer);

}  // namespace cpprun::launcher
