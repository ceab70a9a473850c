#include "rendezvous/store/cas_result.hpp"

namespace cpprun::store {

CasResult read_cas_reply(std::string_view reply, std::string_view expected, std::string_view desired) {
  if (reply == desired) return {CasOutcome::Won, Bytes(reply)};
  // A present value equal to `expected` would have been replaced.
  if (reply == expected && !expected.empty()) return {CasOutcome::Absent, Bytes()};
  return {CasOutcome::Lost, Bytes(reply)};
}

void require_distinct(std::string_view expected, std::string_view desired) {
  if (expected == desired) {
    throw std::invalid_argument(
        "compare_set: the expected and the desired value are the same; use get or set");
  }
}

}  // namespace cpprun::store
